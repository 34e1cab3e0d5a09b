"""Measure how a webhook replica follows mappings: `python -m tools.fleet.mappings --help`.

Another process creates mappings, and changes them, all at once and then one by one. The API server
has the definitions (`kubectl apply -k manifests/crd`).
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from services.kube.access import Access
from services.kube.client import CONFLICT, ClusterClient
from services.kube.watches import WatchTiming
from services.mappings.kinds import ACCELERATOR, TABLE
from services.mappings.source import ApiServerSource
from services.process import logging
from tools.fleet.scenes import each_of

NAMESPACE: Final = "fleet-mappings"
_KIND: Final = TABLE[ACCELERATOR]
_PATH: Final = f"/apis/{_KIND.api_version}/namespaces/{NAMESPACE}/{_KIND.plural}"


def main(
    server: str,
    account: Path,
    *,
    number: Annotated[int, typer.Option(help="Mappings.")] = 10_000,
    seconds: Annotated[float, typer.Option(help="For changes one by one.")] = 600.0,
    write: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Follow the mappings, and say how late they are known and how much CPU that takes."""
    logging.configure("error")
    if write:
        asyncio.run(_write(Access(server, account), write, number, seconds))
    else:
        asyncio.run(_follow(Access(server, account), number, seconds))


async def _follow(access: Access, number: int, seconds: float) -> None:
    source = ApiServerSource(ClusterClient(access), timing=WatchTiming())
    following = asyncio.create_task(source.follow())
    for word, spread in (("first", 0.0), ("second", 0.0), ("third", seconds)):
        began, used = time.monotonic(), time.process_time()
        options = (f"--write={word}", f"--number={number}", f"--seconds={spread}")
        command = [sys.executable, "-m", "tools.fleet.mappings", access.server, str(access.account)]
        writer = await asyncio.to_thread(subprocess.run, [*command, *options], check=True)
        written = time.monotonic()
        while not _are_known(source, word, number):  # noqa: ASYNC110 - it announces nothing
            await asyncio.sleep(0.05)
        now, whole = time.monotonic(), time.monotonic() - began
        share = 100 * (time.process_time() - used) / whole
        typer.echo(
            f"{number} changes in {written - began:.1f} s: known {now - written:.2f} s after the"
            f" last, {share:.1f} % of a core (exit code {writer.returncode})"
        )
    following.cancel()


def _are_known(source: ApiServerSource, word: str, number: int) -> bool:
    names = source.index.namespace(NAMESPACE).accelerators.by_name
    wanted = f"example.com/{word}"
    return sum(each.resolution.resource == wanted for each in names.values()) == number


async def _write(access: Access, word: str, number: int, seconds: float) -> None:
    async with ClusterClient(access) as client:
        namespace = {"metadata": {"name": NAMESPACE}}
        await client.request("POST", "/api/v1/namespaces", body=namespace)

        async def one(name: str) -> None:
            patch: dict[str, Any] = {"spec": {"target": {"resource": f"example.com/{word}"}}}
            kind = {"apiVersion": _KIND.api_version, "kind": _KIND.name}
            answer = await client.request(
                "POST", _PATH, body=kind | {"metadata": {"name": name}} | patch
            )
            if answer.status == CONFLICT:
                merge = "application/merge-patch+json"
                path = f"{_PATH}/{name}"
                answer = await client.request("PATCH", path, body=patch, content_type=merge)
            client.expect(answer, name)

        names = [f"name-{each:05d}" for each in range(number)]
        if not seconds:
            await each_of(names, one)
            return
        began = time.monotonic()
        for each, name in enumerate(names):
            await asyncio.sleep(max(0.0, began + seconds * each / number - time.monotonic()))
            await one(name)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
