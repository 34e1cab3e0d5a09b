"""`accelbind ui`: a read-only page of a cluster, for the person who starts it."""

import asyncio
import contextlib
import secrets
import socket
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from accelbind.cluster import NO_CLUSTER, Target, with_target
from accelbind.flags import namespace_option, switch, time_option, with_settings
from accelbind.ui.live import Live
from accelbind.ui.server import HOST, create_app
from certs.settings import NAMESPACE
from services.process.errors import InvalidSettings
from webhook.settings import ReviewSettings


@with_settings(
    ReviewSettings,
    *("max_units", "domain", "accelerator_domain", "shared_namespace"),
    group="As the webhook's",
)
@with_target
def ui(
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port; 0 takes any free one.")
    ] = 0,
    no_browser: Annotated[
        bool, switch("--no-browser", help="Print the address only, and open no browser.")
    ] = False,
    interval: Annotated[
        float, time_option("--interval", "Time between two readings of the cluster.", "10s")
    ] = 10.0,
    namespace: Annotated[str, namespace_option("Where accelbind runs.", NAMESPACE)] = NAMESPACE,
    target: Target,
    settings: ReviewSettings,
) -> None:
    """Open a page of a cluster: its nodes and devices, names, and pods that wait.

    The page is read-only and served on 127.0.0.1, until Ctrl-C, with your own
    rights; nothing is installed in the cluster. What you may not read is named,
    and the rest is shown. The address has a random token: other users and other
    pages in the browser can read nothing. The cluster is read while a page is
    open. Rights: as accelbind devices --cluster and accelbind names list.

    [bold]Examples[/bold]
      accelbind ui
      accelbind ui --context production --no-browser
    """
    if not target.is_known:
        raise InvalidSettings(NO_CLUSTER)
    with socket.socket() as listener, target.access() as access:
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise InvalidSettings(f"--port {port}: {error.strerror or error}") from error
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(
                _serve(
                    Live(access, namespace, settings.policy(), interval),
                    listener,
                    opens=not no_browser,
                )
            )


async def _serve(live: Live, listener: socket.socket, *, opens: bool) -> None:
    token, port = secrets.token_urlsafe(), listener.getsockname()[1]
    config = uvicorn.Config(
        create_app(live, token, port, lambda: server.should_exit),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    address = f"http://{HOST}:{port}/#token={token}"
    typer.echo(f"{address}\nCtrl-C ends it")
    reading = asyncio.create_task(live.run())
    try:
        with tempfile.TemporaryDirectory(prefix="accelbind-") as folder:
            if opens:
                open_in_browser(address, Path(folder) / "accelbind.html")
            await server.serve(sockets=[listener])
    finally:
        reading.cancel()
        await live.client.aclose()


def open_in_browser(address: str, file: Path) -> None:
    """Open an address through a file that only this user can read."""
    # Everybody on this machine can see the arguments of a browser's process.
    file.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
    webbrowser.open(file.as_uri())
