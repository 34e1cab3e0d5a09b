"""The kubelet stand-in as a process: `python -m simulator.kubelet --dir DIR --node-name NAME`.

SIGTERM and SIGINT end it, leaving what a real kubelet leaves: its sockets, its checkpoint and
the log folders of pods. SIGHUP restarts the kubelet within the process, as a plugin sees it,
SIGUSR1 restarts all containers.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from services.kube.access import Access
from services.kube.client import ClusterClient
from services.process.errors import AccelbindError
from services.process.files import replace_file
from services.process.logging import LEVELS, configure
from services.process.signals import stop_signals
from services.process.waits import first_of
from simulator.kubelet.agent import NodeAgent
from simulator.kubelet.other_plugin import OtherPlugin
from simulator.kubelet.standin import KubeletStandIn


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator.kubelet", description=__doc__)
    flag = parser.add_argument
    flag("--dir", type=Path, required=True, help="a node's /var/lib/kubelet; short, for sockets")
    flag("--node-name", required=True, help="name of the node")
    flag("--api-server", help="API server of the node and its pods (default: none)")
    flag("--retry-seconds", type=float, help="until the next attempt (default: by chance)")
    flag(
        "--other",
        action="append",
        default=[],
        metavar="RESOURCE=COUNT",
        help="a resource that another vendor's plugin serves",
    )
    flag("--ready-file", type=Path, help="written as JSON once it serves and is registered")
    flag("--log-level", choices=list(LEVELS), default="info")
    return parser.parse_args(arguments)


async def run(flags: argparse.Namespace) -> None:
    kubelet = KubeletStandIn(
        flags.dir.absolute(), node_name=flags.node_name, retry_seconds=flags.retry_seconds
    )
    hangup = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, hangup.set)
    loop.add_signal_handler(signal.SIGUSR1, kill_containers, kubelet)
    with stop_signals() as stop:
        async with kubelet:
            await first_of(
                {
                    "end": stop.wait(),
                    "serving": serve(kubelet, flags.api_server, flags.other, flags.ready_file),
                    "restarts": restart(kubelet, hangup),
                }
            )


async def serve(
    kubelet: KubeletStandIn, api_server: str | None, others: Sequence[str], ready_file: Path | None
) -> None:
    """Keep the node on an API server, if there is one, until cancelled.

    The plugins of other vendors end with the first restart of the kubelet.
    """
    async with contextlib.AsyncExitStack() as stack:
        for at, each in enumerate(others):
            resource, _, number = each.partition("=")
            vendor = resource.partition(".")[0]
            plugin = OtherPlugin(  # type: ignore[abstract]  # it serves what it announces
                kubelet.folder,
                [f"{vendor}{device}" for device in range(int(number))],
                resource=resource,
                endpoint=f"other-{at}.sock",
            )
            await stack.enter_async_context(plugin)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if api_server:
            client = await stack.enter_async_context(ClusterClient(Access(api_server)))
            agent = NodeAgent(kubelet, client)
            group.create_task(agent.run())
            await agent.registered.wait()
        if ready_file is not None:
            ready = {"node": kubelet.node_name, "dir": str(kubelet.folder)}
            replace_file(ready_file, json.dumps(ready).encode(), mode=0o600)
        await asyncio.get_running_loop().create_future()


async def restart(kubelet: KubeletStandIn, hangup: asyncio.Event) -> None:
    while True:
        await hangup.wait()
        hangup.clear()
        await kubelet.restart()


def kill_containers(kubelet: KubeletStandIn) -> None:
    """End all containers that run; they start again."""
    for each in (container for pod in kubelet.pods for container in pod if container.running):
        each.killed.set()


def main(arguments: Sequence[str]) -> int:
    flags = parse(arguments)
    configure(flags.log_level, "auto")
    try:
        asyncio.run(run(flags))
    except (AccelbindError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
