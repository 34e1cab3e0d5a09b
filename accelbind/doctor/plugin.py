"""What `accelbind doctor` asks the plugin that runs on a node: is it alive, ready, allowed?"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from accelbind.doctor.model import Check, Line, Once, failed, ok, unseen, warning
from accelbind.doctor.node import OURS, listens
from accelbind.plain_port import NoAnswer, ask, reachable
from plugin.settings import PluginSettings
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder
from services.node.table import HEALTHY, Table
from services.process.errors import AccelbindError
from services.process.text import plain

ANSWER_SECONDS: Final = 4.0

_PERMISSIONS: Final = "accelbind_permission_missing"


@dataclass(slots=True)
class RunningPlugin:
    """The plugin of a node, as it answers on its plain port.

    Args:
        options: As it has them, as far as is known.
    """

    options: PluginSettings
    table: Once[Table] = field(init=False)

    def __post_init__(self) -> None:
        self.table = Once(self._table)

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("node.plugin", "Does the plugin run, and is all registered?", self.ready),
            Check("node.devices", "Are all devices that it offers healthy?", self.devices),
            Check("node.permissions", "May the plugin do what it has to?", self.permissions),
        ]

    @property
    def where(self) -> str:
        """Where it answers."""
        return f"{reachable(self.options.metrics_host)}:{self.options.metrics_port}"

    def mode(self, asked: PluginMode | None) -> PluginMode:
        """The node's mode: as asked for, as the plugin runs, or as a plugin here would."""
        if asked is not None:
            return asked
        try:
            return PluginMode(self.table().mode)
        except (AccelbindError, ValueError):
            return self.options.mode

    def ready(self) -> Iterator[Line]:
        """Liveness and readiness, each of their sentences."""
        try:
            alive, told = self._ask("/healthz")
            if alive != HTTPStatus.OK:
                yield failed(f"{self.where}/healthz: {told}", "its own sockets hang: restart it")
            status, told = self._ask("/readyz")
        except NoAnswer as error:
            yield self._silent(error)
            return
        if status == HTTPStatus.OK:
            yield ok(f"{self.where}/readyz: {told}")
        else:
            yield failed(
                f"{self.where}/readyz: {told}",
                "see node.kubelet, and the plugin's log: what it can't register stands there",
            )

    def devices(self) -> Iterator[Line]:
        """What the plugin says of each device."""
        try:
            table = self.table()
        except NoAnswer:
            yield unseen("the plugin can't be asked", "see node.plugin; node.cards knows the cards")
            return
        for problem in table.problems:
            yield warning(plain(problem, 500), "the plugin says so itself: accelbind devices")
        for row in table.devices:
            if row.health != HEALTHY:
                why = "; ".join(reason.message for reason in row.reasons) or "no reason is told"
                held = ", ".join(f"{each.namespace}/{each.pod}" for each in row.holders)
                by = f" (held by {held})" if held else ""
                yield failed(
                    f"{row.device} of {row.resource or 'no resource'}{by}: {plain(why, 400)}",
                    "see node.cards; nobody is given it meanwhile",
                )
        healthy = sum(row.health == HEALTHY for row in table.devices)
        yield ok(f"{healthy} healthy, mode {plain(table.mode)}")

    def permissions(self) -> Iterator[Line]:
        """What the plugin says that it may not do."""
        try:
            status, text = ask(*self._port(), "/metrics", seconds=ANSWER_SECONDS)
        except NoAnswer:
            yield unseen("the plugin can't be asked", "see node.plugin")
            return
        if status != HTTPStatus.OK:
            yield unseen(f"{self.where}/metrics answers {status}")
            return
        try:
            families = [*text_string_to_metric_families(text.decode(errors="replace"))]
        except ValueError:
            yield unseen(f"what {self.where}/metrics answers are no metrics")
            return
        for family in families:
            for sample in family.samples if family.name == _PERMISSIONS else ():
                path, permission = sample.labels.get("path"), sample.labels.get("permission")
                yield failed(
                    f"{path}: the plugin has no permission to {permission}",
                    "its log (permission missing) says what is lost by it, and what gives it",
                )

    def _silent(self, error: NoAnswer) -> Line:
        folder = plugins_folder(self.options.kubelet_dir)
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
        except OSError:
            names = []
        if any(OURS.fullmatch(name) and not listens(folder / name) for name in names):
            return unseen(
                f"one runs (its sockets in {folder} answer), but {self.where} can't be asked:"
                f" {error}",
                "look from inside: kubectl exec -n accelbind-system ds/accelbind-plugin --"
                " accelbind doctor; or --metrics-host with the pod's address",
            )
        return failed(
            f"no plugin answers on {self.where} ({error}), and none has a socket in {folder}",
            "start it: the DaemonSet of manifests/overlays, or accelbind plugin; if it runs,"
            " --metrics-port and --kubelet-dir must be its",
        )

    def _port(self) -> tuple[str, int]:
        return reachable(self.options.metrics_host), self.options.metrics_port

    def _ask(self, path: str) -> tuple[int, str]:
        status, text = ask(*self._port(), path, seconds=ANSWER_SECONDS)
        lines = text.decode(errors="replace").strip().splitlines()
        return status, plain("; ".join(lines), 600)

    def _table(self) -> Table:
        status, text = ask(*self._port(), "/devices", seconds=ANSWER_SECONDS)
        try:
            return msgspec.json.decode(text, type=Table)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NoAnswer(f"what answers on {self.where} is no plugin ({status})") from error
