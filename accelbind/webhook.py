"""`accelbind webhook`: the admission webhook."""

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


def webhook(
    *,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate and chain, PEM; followed when renewed.",
            readable=False,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its private key, PEM, unencrypted.", readable=False),
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Accept only clients with a certificate of these CAs, PEM; followed. Use a CA of"
            " its own, and the metrics port for probes.",
            readable=False,
        ),
    ] = None,
    mappings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of AcceleratorFunctions and FpgaRegions as YAML; followed when changed.",
            readable=False,
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take them from this API server instead; a pod with a service account"
            " needs neither.",
            readable=False,
        ),
    ] = None,
    max_staleness: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Not ready while mappings are older than that. (default: they serve on)",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Where to listen. (default: ::, all addresses)"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="For reviews, over TLS; 0 = any. (default: 8443)"),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="For metrics and probes, plain HTTP; 0 = any. (default: 9101)"
        ),
    ] = None,
    max_units: Annotated[
        int | None,
        typer.Option(metavar="N", help="Units a container may ask for. (default: 64)"),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN",
            help="Domain whose resources are ours; repeat it for more. (default: fpga.intel.com)",
        ),
    ] = None,
    max_body: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Largest review, as 3145728 or 3Mi. (default: 3Mi)"),
    ] = None,
    drain_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long new connections are still taken after SIGTERM. (default: 1)",
        ),
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    ports_file: PortsFile = None,
    config: ConfigFile = None,
    print_config: PrintConfig = False,
) -> None:
    """Serve the admission webhook over TLS.

    Rewrites the logical names in pods to what their namespace's mappings
    say (POST /mutate), and checks pods after all mutation (POST /validate).
    Each option may also come as a variable ACCELBIND_<OPTION> or from the
    file of --config; options count most, then variables, then the file.

    [bold]Examples[/bold]
      accelbind certs issue --dir . --name localhost
      accelbind webhook --tls-cert tls.crt --tls-key tls.key --mappings maps
      accelbind webhook --tls-cert tls.crt --tls-key tls.key --kubeconfig k.yaml
      ACCELBIND_MAX_UNITS=8 accelbind webhook --config webhook.yaml --print-config
    """
    flags = given(locals())
    from services.process.settings import load, render  # noqa: PLC0415 - only when it runs
    from webhook.settings import WebhookSettings  # noqa: PLC0415 - the same

    settings = load(WebhookSettings, flags, config)
    if print_config:
        typer.echo(render(settings), nl=False)
        return
    import uvloop  # noqa: PLC0415 - the server takes its time, and only the server needs it

    from webhook.process import run  # noqa: PLC0415 - the same

    uvloop.run(run(settings))
