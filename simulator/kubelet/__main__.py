"""The kubelet stand-in as a process: `python -m simulator.kubelet --dir DIR --node-name NAME`.

SIGTERM and SIGINT end it, leaving what a real kubelet leaves: its sockets, its checkpoint and
the log folders of pods. SIGHUP restarts the kubelet within the process, as a plugin sees it.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import structlog

from services.kube.client import ClusterClient
from services.kube.config import load_config
from services.process.errors import AccelbindError
from services.process.files import replace_file
from services.process.logging import FORMATS, LEVELS, configure
from services.process.signals import stop_signals
from simulator.kubelet.agent import NodeAgent
from simulator.kubelet.standin import KubeletStandIn

LOG = structlog.get_logger()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.kubelet",
        description="A kubelet stand-in: devices, pods and their starts, without containers.",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        required=True,
        help="folder for device-plugins/ and pod-resources/ (a node's /var/lib/kubelet); short",
    )
    parser.add_argument("--node-name", required=True, help="name of the node")
    parser.add_argument(
        "--pod-logs-dir",
        type=Path,
        help="folder for the pods' log folders, a node's /var/log/pods (default: DIR/pod-logs)",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        help="API server to register the node with and to take pods from (default: none)",
    )
    parser.add_argument(
        "--retry-seconds",
        type=float,
        help="between two tries to start a container (default: 10 to 20, by chance)",
    )
    parser.add_argument(
        "--seed", type=int, help="let chance decide where a real kubelet does, from this seed"
    )
    parser.add_argument(
        "--ready-file",
        type=Path,
        help="written as JSON once it serves, and the node is registered if there is a kubeconfig",
    )
    parser.add_argument("--log-level", choices=list(LEVELS), default="info")
    parser.add_argument("--log-format", choices=list(FORMATS), default="auto")
    return parser.parse_args(arguments)


async def run(flags: argparse.Namespace) -> None:
    """Runs a kubelet until a signal ends it."""
    seed = flags.seed
    kubelet = KubeletStandIn(
        flags.dir.absolute(),
        node_name=flags.node_name,
        pod_logs_dir=flags.pod_logs_dir,
        retry_seconds=flags.retry_seconds,
        rng=None if seed is None else random.Random(seed),  # noqa: S311 - repeatable on purpose
    )
    with stop_signals() as stop:
        async with kubelet, restarting(kubelet):
            serving = asyncio.create_task(serve(kubelet, flags.kubeconfig, flags.ready_file))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if serving.done():
                serving.result()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def serve(kubelet: KubeletStandIn, kubeconfig: Path | None, ready_file: Path | None) -> None:
    """Keeps the node's resources in the log, and with a kubeconfig on the API server, for ever."""
    config = load_config(kubeconfig) if kubeconfig else None
    async with contextlib.AsyncExitStack() as stack:
        agent = None
        if config is not None:
            agent = NodeAgent(kubelet, await stack.enter_async_context(ClusterClient(config)))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(log_resources(kubelet))
        if agent is not None:
            group.create_task(agent.run())
            await agent.registered.wait()
        if ready_file is not None:
            ready = {"node": kubelet.node_name, "dir": str(kubelet.folder)}
            replace_file(ready_file, json.dumps(ready).encode(), mode=0o600)
        await asyncio.get_running_loop().create_future()


@contextlib.asynccontextmanager
async def restarting(kubelet: KubeletStandIn) -> AsyncIterator[None]:
    """Has SIGHUP restart the kubelet within the block, one restart at a time."""
    asked = asyncio.Event()

    async def restart() -> None:
        while True:
            await asked.wait()
            asked.clear()
            await kubelet.restart()

    loop = asyncio.get_running_loop()
    task = asyncio.create_task(restart())
    loop.add_signal_handler(signal.SIGHUP, asked.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def log_resources(kubelet: KubeletStandIn) -> None:
    """Logs the node's resources whenever they change."""
    shown = None
    while True:
        version = kubelet.version
        resources = kubelet.resources
        if resources != shown:
            shown = resources
            LOG.info(
                "resources",
                node=kubelet.node_name,
                capacity=resources.capacity,
                allocatable=resources.allocatable,
            )
        with contextlib.suppress(TimeoutError):
            await kubelet.until(lambda: kubelet.version != version, 5)  # noqa: B023 - awaited here


def main(arguments: Sequence[str]) -> int:
    """Runs the process; gives its exit code."""
    flags = parse(arguments)
    configure(flags.log_level, flags.log_format)
    try:
        asyncio.run(run(flags))
    except (AccelbindError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
