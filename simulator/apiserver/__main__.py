"""`python -m simulator.apiserver`: the API server stand-in as a process.

Writes its kubeconfig (and with `--ports-file` its port) once it answers, and ends on SIGTERM. It
also listens on the socket `api.sock`, where it asks for no credentials, like `kubectl proxy`.
"""

import argparse
import asyncio
from pathlib import Path

from services.process.listening import write_ports
from services.process.signals import stop_signals
from simulator.apiserver.standin import ApiServerStandIn, Options


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m simulator.apiserver", description=__doc__)
    made.add_argument("--dir", type=Path, required=True, help="for kubeconfig and socket")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=int, default=0, help="0 = any free port")
    made.add_argument("--ports-file", type=Path, help='where to write {"https": PORT}')
    made.add_argument("--name", action="append", default=[], help="further name in the certificate")
    return made


async def run(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    arguments.dir.mkdir(parents=True, exist_ok=True)
    names = ("localhost", *arguments.name)
    options = Options(host=arguments.host, port=arguments.port, names=names)
    with stop_signals() as stop:
        async with ApiServerStandIn(arguments.dir, options) as api:
            write_ports(arguments.ports_file, {"https": api.port})
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(run(parser().parse_args()))
