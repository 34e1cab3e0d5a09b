"""`accelbind certs`: create, renew, show and manage the webhook's certificates."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from accelbind.cluster import Target, with_target
from accelbind.flags import file_option, settings_command, switch, with_settings
from accelbind.output import Output, print_result, table_lines
from certs import folder, keeper
from certs.process import run as run_process
from certs.settings import CertsSettings
from certs.show import show_cluster, show_folder
from services.kube.client import ClusterClient
from services.process import logging

app = typer.Typer(
    help="Create, renew, show and manage the webhook's certificates.", no_args_is_help=True
)

PLACES = ("namespace", "service", "ca_secret", "tls_secret", "webhook_config")
CLUSTER = "Where and what"


def serve(settings: CertsSettings, _context: typer.Context) -> None:
    """Manage a cluster's certificates: issue, renew, replace the CA, set the bundle.

    The CA with its key and the serving certificate are stored in two Secrets,
    which are created if they do not exist. Any number of replicas may run.
    A CA is valid for 10 years and a serving certificate for 90 days; both are
    renewed at two thirds of their life. Required rights, by
    name: get, update, patch and create of the two Secrets; get and update of
    the webhook configurations.
    Each option may also be a variable ACCELBIND_<OPTION>. A TIME is a number
    with ms, s, m, h or d behind it; a bare number counts seconds.

    [bold]Examples[/bold]
      accelbind certs run
      accelbind certs run --api-server unix:/tmp/api -n accelbind-system --print-config
    """
    asyncio.run(run_process(settings))


app.command("run")(settings_command(CertsSettings, serve))


@app.command()
def issue(
    *,
    directory: Annotated[Path, file_option("--dir", text="Folder of the files.", metavar="DIR")],
    name: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="DNS name or IP address of the webhook; may be repeated."
        ),
    ],
    output: Output = "text",
) -> None:
    """Issue a serving certificate, valid for a year, from the folder's own CA.

    Creates the CA, valid for 10 years, the first time, and reuses it from then
    on. Writes ca.crt, ca.key, tls.crt and tls.key; the keys are readable by
    their owner only.

    [bold]Examples[/bold]
      accelbind certs issue --dir . --name accelbind-webhook.accelbind-system.svc
      accelbind certs issue --dir tls --name localhost --name 127.0.0.1
    """
    bundle = base64.b64encode(folder.issue(directory, name).ca_certificate.read_bytes()).decode()
    facts = show_folder(directory) | {"caBundle": bundle}
    lines = [*_certificate_lines(facts), "caBundle for the webhook configuration:", bundle]
    print_result(output, facts, lines)


@app.command()
@with_settings(CertsSettings, *PLACES, group=CLUSTER)
@with_target
def show(
    *,
    directory: Annotated[
        Path | None,
        file_option(
            "--dir",
            text="A folder of certs issue, or a mounted Secret, instead of a cluster.",
            metavar="DIR",
        ),
    ] = None,
    target: Target,
    settings: CertsSettings,
    output: Output = "text",
) -> None:
    """Show the certificates: subjects, names, expiry, fingerprints.

    Of the cluster, as certs run maintains them, or of a folder. Keys are not
    shown, and fingerprints whole in JSON only. accelbind doctor checks whether the
    API server trusts the webhook.

    [bold]Examples[/bold]
      accelbind certs show --dir tls
      accelbind certs show --kubeconfig ~/.kube/config -o json
    """
    if directory:
        facts = show_folder(directory)
    else:
        facts = target.query(lambda client: show_cluster(client, settings))
    print_result(output, facts, _certificate_lines(facts))


@app.command()
@with_settings(CertsSettings, "name", "settle", *PLACES, group=CLUSTER)
@with_target
def renew(
    *,
    ca: Annotated[bool, switch("--ca", help="Replace the CA too.")] = False,
    target: Target,
    settings: CertsSettings,
    output: Output = "text",
) -> None:
    """Renew the serving certificate now, although it is not due.

    It keeps the names of the present one. With --ca a new CA signs it: the
    bundle with both CAs goes into the webhook configurations, and the
    certificate into its Secret after --settle. A day later certs run takes the
    old CA out of the bundle. In a folder, use certs issue again.

    [bold]Examples[/bold]
      accelbind certs renew --kubeconfig ~/.kube/config
      accelbind certs renew --kubeconfig ~/.kube/config --ca
    """
    logging.configure("warning")  # only what is unusual goes to stderr

    async def work(client: ClusterClient) -> dict[str, Any]:
        await keeper.renew(client, settings, authority=ca)
        return await show_cluster(client, settings)

    facts = target.query(work)
    print_result(output, facts, _certificate_lines(facts))


def _certificate_lines(facts: dict[str, Any]) -> Iterator[str]:
    rows = [
        (
            one["role"],
            one["subject"],
            ", ".join(one["names"]),
            f"{one['notAfter'][:16]}Z",
            f"{one['daysLeft']:g}" if one["valid"] else "not valid",
            one.get("key", ""),
            _short(one["fingerprint"]),
        )
        for one in facts["certificates"]
    ]
    yield from table_lines(("ROLE", "SUBJECT", "NAMES", "EXPIRES", "DAYS", "KEY", "SHA-256"), rows)
    yield ""
    for one in facts["bundles"]:
        held = ", ".join(map(_short, one["fingerprints"])) or "nothing"
        yield f"{one['configuration']} trusts {held}"


def _short(fingerprint: str) -> str:
    return f"{fingerprint[:11]}…"
