"""Measure what a fleet asks of an API server: `python -m tools.fleet --help`.

Each node runs the API side of a node process, with a connection of its own and one account for all.
"""

import asyncio
import contextlib
import json
import resource
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from services.kube.access import Access, find_access
from services.process import logging
from tools.fleet.plot import plot
from tools.fleet.scenes import SCENES, Fleet, Report


def main(
    *,
    scenes: Annotated[list[str], typer.Argument(help=f"Of {', '.join(SCENES)}.")],
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 100,
    dra: Annotated[bool, typer.Option(help="Nodes serve by DRA.")] = True,
    minutes: Annotated[float, typer.Option(help="Length of the scene `rest`.")] = 10.0,
    api_server: Annotated[str, typer.Option(help="http://… or unix:… of kubectl proxy.")] = "",
    account: Annotated[
        Path | None, typer.Option(help="Folder with token and ca.crt, for https://….")
    ] = None,
    restart: Annotated[str, typer.Option(help="Command that restarts the API server.")] = "true",
    output: Annotated[
        Path | None, typer.Option(help="Folder for fleet.json and fleet.svg.")
    ] = None,
) -> None:
    """Start a fleet, play scenes one after the other, and say what was asked."""
    logging.configure("error")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    access = Access(api_server, account) if account else find_access(api_server)
    if access is None:
        raise SystemExit("name an API server")
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(access, Path(folder), nodes, dra, minutes, restart)
        reports = asyncio.run(_play(fleet, ["start", *scenes]))
    if output:
        output.mkdir(parents=True, exist_ok=True)
        (output / "fleet.json").write_text(json.dumps([asdict(each) for each in reports], indent=1))
        (output / "fleet.svg").write_text(plot(reports))


async def _play(fleet: Fleet, scenes: list[str]) -> list[Report]:
    reports = []
    task = asyncio.create_task(fleet.bystander.run())
    for name in scenes:
        report = await fleet.play(name)
        shown = asdict(report) | {"by_second": f"at most {max(report.by_second)}"}
        typer.echo(json.dumps(shown))
        reports.append(report)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return reports


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
