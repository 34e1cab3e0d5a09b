"""`python -m simulator.apiserver`: the API server stand-in as a process.

Writes its kubeconfig (and with `--ports-file` its port) once it answers, and ends on SIGTERM.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from services.process.listening import write_ports
from services.process.signals import stop_signals
from simulator.apiserver.standin import ApiServerStandIn, Options
from simulator.apiserver.tls import ServingPair


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m simulator.apiserver", description=__doc__)
    made.add_argument("--dir", type=Path, required=True, help="kubeconfig and audit.jsonl go here")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=int, default=0, help="0 = any free port")
    made.add_argument("--ports-file", type=Path, help='where to write {"https": PORT}')
    made.add_argument("--kubeconfig-out", type=Path, help="instead of DIR/kubeconfig")
    made.add_argument("--token", default="", help="the bearer token (default: made up)")
    made.add_argument("--tls-cert", type=Path, help="serving certificate, with --tls-key")
    made.add_argument("--tls-key", type=Path, help="its key")
    made.add_argument("--tls-ca", type=Path, help="what clients trust (default: --tls-cert)")
    made.add_argument("--name", action="append", default=[], help="further name in the certificate")
    made.add_argument(
        "--service-map",
        action="append",
        default=[],
        metavar="NAME.NAMESPACE.svc=HOST:PORT",
        help="where a Service that a webhook configuration names is reached",
    )
    made.add_argument("--no-scheduler", action="store_true", help="leave pods unbound")
    made.add_argument("--bookmark-interval", type=float, default=60.0, help="seconds")
    return made


def options_of(arguments: argparse.Namespace) -> Options:
    """The options of a command line."""
    pair = None
    if arguments.tls_cert is not None:
        certificate = arguments.tls_cert.read_bytes()
        authority = arguments.tls_ca.read_bytes() if arguments.tls_ca else certificate
        pair = ServingPair(certificate, arguments.tls_key.read_bytes(), authority)
    services = dict(entry.partition("=")[::2] for entry in arguments.service_map)
    return Options(
        host=arguments.host,
        port=arguments.port,
        token=arguments.token,
        names=("localhost", *arguments.name),
        pair=pair,
        services=services,
        schedule=not arguments.no_scheduler,
        bookmark_interval=arguments.bookmark_interval,
    )


async def run(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    arguments.dir.mkdir(parents=True, exist_ok=True)
    api = ApiServerStandIn(
        arguments.dir, options_of(arguments), kubeconfig_path=arguments.kubeconfig_out
    )
    with stop_signals() as stop:
        async with api:
            write_ports(arguments.ports_file, {"https": api.port})
            await stop.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; exit code 2 for a wrong command line."""
    made = parser()
    arguments = made.parse_args(argv)
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        made.error("--tls-cert and --tls-key go together")
    asyncio.run(run(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
