"""`accelbind certs run`: the process that manages a cluster's certificates."""

import typer

from accelbind.run import settings_command
from certs.settings import CertsSettings


def serve(settings: CertsSettings, _context: typer.Context) -> None:
    """Manage a cluster's certificates: issue, renew, replace the CA, set the bundle.

    The CA with its key and the serving certificate are stored in two Secrets,
    which are created if they do not exist. Any number of replicas may run.
    Certificates are renewed at two thirds of their life. Required rights, by
    name: get, update, patch and create of the two Secrets; get and update of
    the webhook configurations.
    Each option may also be a variable ACCELBIND_<OPTION>. A TIME is a number
    with ms, s, m, h or d behind it; a bare number counts seconds unless the
    option says otherwise.

    [bold]Examples[/bold]
      accelbind certs run
      accelbind certs run --kubeconfig k.yaml -n accelbind-system --print-config
    """
    import asyncio  # noqa: PLC0415 - only when it runs

    from certs.process import run as run_process  # noqa: PLC0415 - the same

    asyncio.run(run_process(settings))


run = settings_command(CertsSettings, serve)
