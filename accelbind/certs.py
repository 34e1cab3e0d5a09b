"""`accelbind certs`: the webhook's certificates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelbind.certs_run import run

if TYPE_CHECKING:
    from certs.folder import IssuedPaths

app = typer.Typer(
    name="certs",
    help="Make, keep, show and check the webhook's certificates.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def certs() -> None:
    """Make, keep, show and check the webhook's certificates."""


app.command()(run)


@app.command()
def issue(
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the files are kept.", readable=False)
    ],
    name: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="DNS name or IP address of the webhook; repeat it for more.",
        ),
    ],
    days: Annotated[int, typer.Option(help="How long the serving certificate is valid.")] = 365,
    ca_days: Annotated[int, typer.Option(help="How long a new CA is valid.")] = 3650,
) -> None:
    """Issue a serving certificate from the folder's own CA.

    Makes the CA the first time and keeps it from then on. Writes ca.crt,
    ca.key, tls.crt and tls.key; the keys are readable by their owner only.

    [bold]Examples[/bold]
      accelbind certs issue --dir tls --name accelbind-webhook.accelbind.svc
      accelbind certs issue --dir tls --name localhost --name 127.0.0.1
    """
    from certs.folder import issue as issue_into  # noqa: PLC0415 - cryptography takes its time

    issued = issue_into(directory, name, days=days, ca_days=ca_days)
    _show(issued)


def _show(issued: "IssuedPaths") -> None:
    import base64  # noqa: PLC0415 - as above: only once there is something to show

    made = "new" if issued.new_authority else "kept"
    bundle = base64.b64encode(issued.ca_certificate.read_bytes()).decode()
    for line in (
        f"CA           {issued.ca_certificate} ({made}, valid until {issued.authority_ends:%F})",
        f"certificate  {issued.certificate} (valid until {issued.ends:%F})",
        f"             for {', '.join(issued.names)}",
        f"keys         {issued.ca_key}, {issued.key} (mode 0600)",
        "",
        "caBundle for the webhook configuration:",
        bundle,
    ):
        typer.echo(line)
