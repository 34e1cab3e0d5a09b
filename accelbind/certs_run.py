"""`accelbind certs run`: the process that manages a cluster's certificates."""

from pathlib import Path
from typing import Annotated

import typer

from accelbind.process_flags import (
    ConfigFile,
    LogFormat,
    LogLevel,
    PortsFile,
    PrintConfig,
    given,
)

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="How to reach the API server; not needed in a pod with a service account.",
        readable=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Of the Secrets and the Service. (default: the pod's own, or accelbind-system)",
    ),
]
Service = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The webhook's Service. (default: accelbind-webhook)"),
]
Names = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A further DNS name or IP address; repeat it for more."),
]
CaSecret = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Secret of the CA and its key. (default: accelbind-ca)"),
]
TlsSecret = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Secret that the webhook mounts. (default: accelbind-webhook-tls)"
    ),
]
Configurations = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Webhook configurations, mutating and validating, that get the bundle; repeat it for"
        " more. (default: accelbind)",
    ),
]
Lifetime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long a serving certificate is valid. (default: 90d)"),
]
CaLifetime = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long a CA is valid. (default: 3650d)")
]
Settle = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long a new CA is in the bundle before it signs. (default: 1m)",
    ),
]


def run(
    *,
    namespace: Namespace = None,
    service: Service = None,
    name: Names = None,
    ca_secret: CaSecret = None,
    tls_secret: TlsSecret = None,
    webhook_config: Configurations = None,
    lifetime: Lifetime = None,
    ca_lifetime: CaLifetime = None,
    settle: Settle = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Age of the serving certificate at which the CAs before its own leave the bundle;"
            " less than two thirds of --lifetime. (default: 1d)",
        ),
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two rounds. (default: 10s)")
    ] = None,
    kubeconfig: Kubeconfig = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Where to listen for probes. (default: ::, all addresses)"
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="For metrics and probes, plain HTTP; 0 = any. (default: 9103)"
        ),
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    ports_file: PortsFile = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Manage a cluster's certificates: issue, renew, replace the CA, set the bundle.

    The CA with its key and the serving certificate are stored in two Secrets,
    which must exist and may be empty. Any number of replicas may run.
    Certificates are renewed at two thirds of their life. Required rights: get
    and update of the two Secrets and of the webhook configurations, by name.
    A TIME is a number followed by ms, s, m, h or d. Each option may also be
    a variable ACCELBIND_<OPTION>, or come from the file of --config.

    [bold]Examples[/bold]
      accelbind certs run
      accelbind certs run --kubeconfig k.yaml -n accelbind-system --print-config
    """
    flags = given(locals())
    from certs.settings import CertsSettings  # noqa: PLC0415 - only when it runs
    from services.process.settings import load, render  # noqa: PLC0415 - the same

    settings = load(CertsSettings, flags, config)
    if print_config:
        typer.echo(render(settings), nl=False)
        return
    import asyncio  # noqa: PLC0415 - only when it runs

    from certs.process import run as run_process  # noqa: PLC0415 - the same

    asyncio.run(run_process(settings))
