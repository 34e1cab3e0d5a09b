"""`accelbind certs show` and `verify`: what there is of certificates, and whether it holds."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelbind.certs_run import (
    CaSecret,
    Configurations,
    Kubeconfig,
    Names,
    Namespace,
    Service,
    TlsSecret,
)
from accelbind.printing import Format, Output, print_json, print_table
from accelbind.process_flags import given

if TYPE_CHECKING:
    from certs.contents import Contents
    from certs.settings import CertsSettings
    from certs.verify import Check

EXIT_BAD = 1

Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="A folder of certs issue, or a mounted Secret, instead of a cluster.",
        readable=False,
    ),
]


def settings_of(**flags: Any) -> "CertsSettings":  # noqa: ANN401 - flags of any kind
    """The settings that `certs run` would have, with these flags; for commands that end."""
    from certs.settings import CertsSettings  # noqa: PLC0415 - only when a command runs
    from services.process import logging  # noqa: PLC0415 - the same
    from services.process.settings import load  # noqa: PLC0415 - the same

    logging.configure("warning")  # what is done is printed, and what is odd goes to stderr
    return load(CertsSettings, given(flags))


def contents_of(directory: Path | None, settings: "CertsSettings") -> "Contents":
    """What a folder holds, or the cluster if no folder is named."""
    import asyncio  # noqa: PLC0415 - only when a command runs

    from certs.contents import from_folder  # noqa: PLC0415 - the same
    from certs.oneshot import look  # noqa: PLC0415 - the same

    return asyncio.run(look(settings)) if directory is None else from_folder(directory)


def show(
    *,
    directory: Folder = None,
    namespace: Namespace = None,
    service: Service = None,
    ca_secret: CaSecret = None,
    tls_secret: TlsSecret = None,
    webhook_config: Configurations = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Show the certificates: subjects, names, when they end, fingerprints.

    Of the cluster, as certs run keeps them, or of a folder. Keys are not shown.

    [bold]Examples[/bold]
      accelbind certs show --dir tls
      accelbind certs show --kubeconfig ~/.kube/config -o json
    """
    from certs.authority import utc_now  # noqa: PLC0415 - only when it runs
    from certs.show import described  # noqa: PLC0415 - the same

    settings = settings_of(
        namespace=namespace,
        service=service,
        ca_secret=ca_secret,
        tls_secret=tls_secret,
        webhook_config=webhook_config,
        kubeconfig=kubeconfig,
    )
    found = described(contents_of(directory, settings), utc_now())
    if output is Format.JSON:
        print_json(found)
    else:
        _print(found)


def verify(
    *,
    directory: Folder = None,
    name: Names = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Ask a webhook there what it shows: https://HOST[:PORT]."),
    ] = None,
    server_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What it is to be called. (default: SERVICE.NAMESPACE.svc; with --dir the URL's"
            " host)",
        ),
    ] = None,
    within: Annotated[
        str, typer.Option(metavar="TIME", help="A certificate that ends so soon is not good.")
    ] = "7d",
    namespace: Namespace = None,
    service: Service = None,
    ca_secret: CaSecret = None,
    tls_secret: TlsSecret = None,
    webhook_config: Configurations = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Check the certificates: chain, names, keys, expiry, bundles.

    Of the cluster, as certs run keeps them, or of a folder; with --url also what
    a webhook shows, as an API server that trusts the bundle would find it.
    Exit code 0: all good; 1: something isn't; 2: wrong options.

    [bold]Examples[/bold]
      accelbind certs verify --dir tls --name localhost
      accelbind certs verify --kubeconfig ~/.kube/config
      accelbind certs verify --url https://accelbind-webhook.accelbind-system.svc
    """
    settings = settings_of(
        namespace=namespace,
        service=service,
        name=name,
        ca_secret=ca_secret,
        tls_secret=tls_secret,
        webhook_config=webhook_config,
        kubeconfig=kubeconfig,
    )
    checks = list(
        _checks(
            directory,
            settings,
            names=name or [],
            url=url,
            server_name=server_name,
            within=within,
        )
    )
    if output is Format.JSON:
        print_json(
            [
                {"check": one.name, "good": one.good, "said": one.said, "remedy": _remedy(one)}
                for one in checks
            ]
        )
    else:
        for one in checks:
            typer.echo(f"{'ok ' if one.good else 'BAD'}  {one.name.ljust(7)} {one.said}")
            if remedy := _remedy(one):
                typer.echo(f"             {remedy}")
    if not all(one.good for one in checks):
        raise typer.Exit(EXIT_BAD)


def _checks(
    directory: Path | None,
    settings: "CertsSettings",
    *,
    names: list[str],
    url: str | None,
    server_name: str | None,
    within: str,
) -> "Iterable[Check]":
    from datetime import timedelta  # noqa: PLC0415 - only when it runs
    from urllib.parse import urlsplit  # noqa: PLC0415 - the same

    from certs.authority import name_text, parse_names, utc_now  # noqa: PLC0415 - the same
    from certs.settings import duration  # noqa: PLC0415 - the same
    from certs.verify import check, check_served, served_by  # noqa: PLC0415 - the same
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - the same

    try:
        soon = duration(within)
    except ValueError as error:
        raise InvalidSettings(f"--within: {error}") from error
    assert isinstance(soon, timedelta)  # noqa: S101 - of a text it is one
    wanted = settings.rules.names
    if directory is not None:
        wanted = parse_names(names) if names else ()
    contents = contents_of(directory, settings)
    yield from check(contents, wanted, utc_now(), soon)
    if url is not None:
        host = urlsplit(url if "//" in url else f"https://{url}").hostname or ""
        called = server_name or (host if directory is not None else name_text(wanted[0]))
        yield check_served(served_by(url, called, contents.authorities), contents)


def _remedy(one: "Check") -> str:
    return "" if one.good else one.remedy


def _print(found: dict[str, Any]) -> None:
    rows = [
        (
            one["role"],
            one["subject"],
            ", ".join(one["names"]),
            f"{one['notAfter'][:16]}Z",
            f"{one['daysLeft']:g}" if one["valid"] else "not valid",
            one.get("key", ""),
        )
        for one in found["certificates"]
    ]
    print_table(("WHAT", "SUBJECT", "NAMES", "ENDS", "DAYS", "KEY"), rows)
    typer.echo("")
    for one in found["certificates"]:
        typer.echo(f"{one['role'].ljust(8)} SHA-256 {one['fingerprint']}")
    for one in found["bundles"]:
        held = ", ".join(f"{text[:11]}…" for text in one["fingerprints"]) or "nothing"
        typer.echo(f"{one['configuration']} trusts {held}")
    for name in found["missing"]:
        typer.echo(f"{name} is not there")
