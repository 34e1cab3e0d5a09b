"""`accelbind certs`: the webhook's certificates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelbind.certs_look import Folder, contents_of, settings_of, show, verify
from accelbind.certs_run import (
    CaLifetime,
    CaSecret,
    Configurations,
    Kubeconfig,
    Names,
    Namespace,
    Service,
    Settle,
    TlsSecret,
    run,
)

if TYPE_CHECKING:
    from datetime import timedelta

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
app.command()(show)
app.command()(verify)


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
      accelbind certs issue --dir . --name accelbind-webhook.accelbind-system.svc
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


@app.command()
def renew(
    *,
    directory: Folder = None,
    ca: Annotated[bool, typer.Option("--ca", help="Change the CA too.")] = False,
    name: Names = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long the certificate is valid. (default: 90d; in a folder as long as the one"
            " before)",
        ),
    ] = None,
    ca_lifetime: CaLifetime = None,
    settle: Settle = None,
    namespace: Namespace = None,
    service: Service = None,
    ca_secret: CaSecret = None,
    tls_secret: TlsSecret = None,
    webhook_config: Configurations = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Renew the serving certificate now, although it isn't due.

    In the cluster, or in a folder: for the names that its certificate has and,
    unless --lifetime says otherwise, for as long as that one was. With --ca
    (cluster only) a new CA signs it: first the bundle with both goes into the
    webhook configurations, then, when it has settled, the certificate into its
    Secret; the old CA leaves once certs run finds it served by nobody.

    [bold]Examples[/bold]
      accelbind certs renew --kubeconfig ~/.kube/config
      accelbind certs renew --kubeconfig ~/.kube/config --ca
      accelbind certs renew --dir tls
    """
    settings = settings_of(
        name=name,
        lifetime=lifetime,
        ca_lifetime=ca_lifetime,
        settle=settle,
        namespace=namespace,
        service=service,
        ca_secret=ca_secret,
        tls_secret=tls_secret,
        webhook_config=webhook_config,
        kubeconfig=kubeconfig,
    )
    if directory is not None:
        told = settings.lifetime if "lifetime" in settings.model_fields_set else None
        _renew_in(directory, told, name or [], ca=ca)
        return
    import asyncio  # noqa: PLC0415 - only when it runs

    from certs.oneshot import renew as renew_now  # noqa: PLC0415 - the same
    from certs.settings import duration_text  # noqa: PLC0415 - the same

    outcome = asyncio.run(
        renew_now(
            settings,
            authority=ca,
            waiting=lambda time: typer.echo(
                f"the new CA is in the bundle; it serves in {duration_text(time)}", err=True
            ),
        )
    )
    ends = outcome.serving_ends
    typer.echo(f"renewed: valid until {ends:%F %T}" if ends else "renewed")
    for missing in outcome.missing:
        typer.echo(f"there is no {missing}, so no bundle in it", err=True)


def _renew_in(directory: Path, told: "timedelta | None", names: list[str], *, ca: bool) -> None:
    from datetime import timedelta  # noqa: PLC0415 - only when it runs

    from certs.authority import name_text  # noqa: PLC0415 - the same
    from certs.contents import from_folder  # noqa: PLC0415 - the same
    from certs.folder import SERVING_DAYS  # noqa: PLC0415 - the same
    from certs.folder import issue as issue_into  # noqa: PLC0415 - the same
    from certs.reading import lifetime_of, names_of  # noqa: PLC0415 - the same
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - the same

    if ca:
        raise InvalidSettings(
            "--ca is for a cluster, where the bundle follows; of a folder, move ca.crt and ca.key"
            " away, issue anew and put the new bundle where it is trusted"
        )
    contents = from_folder(directory)
    chain = contents.chain
    held = [name_text(name) for name in names_of(chain[0])] if chain else []
    lifetime = told
    if told is None and chain:
        lifetime = lifetime_of(chain[0], contents.authorities)
    if told is not None and (told.days < 1 or told % timedelta(days=1)):
        raise InvalidSettings("--lifetime counts whole days in a folder, such as 90d")
    days = SERVING_DAYS if lifetime is None else max(1, lifetime.days)
    _show(issue_into(directory, list(dict.fromkeys([*held, *names])), days=days))


@app.command()
def inject(
    *,
    directory: Folder = None,
    namespace: Namespace = None,
    service: Service = None,
    ca_secret: CaSecret = None,
    tls_secret: TlsSecret = None,
    webhook_config: Configurations = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Put the CA bundle into the webhook configurations now.

    The CAs of the CA's Secret, or with --dir those of the folder's ca.crt. Only
    the field caBundle of our own entries is changed.

    [bold]Examples[/bold]
      accelbind certs inject --kubeconfig ~/.kube/config
      accelbind certs inject --kubeconfig ~/.kube/config --dir tls
    """
    import asyncio  # noqa: PLC0415 - only when it runs

    from certs.oneshot import inject as inject_now  # noqa: PLC0415 - the same

    settings = settings_of(
        namespace=namespace,
        service=service,
        ca_secret=ca_secret,
        tls_secret=tls_secret,
        webhook_config=webhook_config,
        kubeconfig=kubeconfig,
    )
    folder = None if directory is None else contents_of(directory, settings)
    found, changed = asyncio.run(inject_now(settings, folder))
    for one in found:
        typer.echo(f"{one}  {'bundle put in' if one in changed else 'has it already'}")
