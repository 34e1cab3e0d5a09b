"""`accelbind devices --cluster`: every node of a cluster, with the rights of whoever asks."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import typer

from accelbind.fleet import show
from accelbind.fleet.reading import Progress, read_fleet
from accelbind.kubectl import Target
from accelbind.output import print_json, print_lines, warn
from services.kubelet.values import HEALTHY
from services.node.table import Row
from services.process.text import plain

_PATIENCE: Final = 2.0
"""Seconds after which a terminal shows a progress bar."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The devices that are wanted; empty ones want all."""

    nodes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    """Full names, or what is behind the slash; types, where only slices are read."""
    namespace: str = ""
    """That of a pod or claim that has the device."""
    unhealthy: bool = False

    @property
    def wanted(self) -> Callable[[Row], bool] | None:
        """Whether a device is wanted; None if all are."""
        if not (self.resources or self.namespace or self.unhealthy):
            return None
        return self._is_wanted

    def _is_wanted(self, row: Row) -> bool:
        # A slice doesn't say by which resource its devices can be requested, if any.
        names = {row.resource, row.resource.partition("/")[2]} if row.resource else {row.type}
        return (
            (not self.resources or not names.isdisjoint(self.resources))
            and (not self.unhealthy or row.health != HEALTHY)
            and (not self.namespace or any(self.namespace == it.namespace for it in row.holders))
        )


def show_cluster(target: Target, filters: Filters, output: str, *, devices: bool) -> None:
    """Print the nodes of a cluster, or their devices.

    Raises:
        ClusterError: There is no cluster, or it does not answer.
    """
    with _progress() as progress:
        fleet = target.query(lambda client: read_fleet(client, filters.nodes, progress))
    shown = show.filtered(fleet, filters.wanted)
    match output:
        case "json":
            print_json(show.document(shown))
        case "yaml":
            typer.echo(show.yaml_text(shown), nl=False)
        case _:
            lines = show.device_lines if devices else show.node_lines
            print_lines(lines(shown, wide=output == "wide"))
    for problem in shown.problems:
        warn(plain(problem, 600))


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, once it has taken a while."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        bars: list[Any] = []  # Typer does not name the type

        def step(done: int, of: int) -> None:
            if not bars and sys.stderr.isatty() and time.monotonic() - started > _PATIENCE:
                bar = typer.progressbar(length=of, label="asking nodes", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            for bar in bars:
                bar.update(done - bar.pos)

        yield step
