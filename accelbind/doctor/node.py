"""What `accelbind doctor` looks at on a node: driver, cards, and what the kubelet has there.

Everything is found under `--root` and `--kubelet-dir`, as the plugin finds it; nothing is written,
and nothing is asked of the kubelet but who listens and who has which device.
"""

import asyncio
import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from accelbind.doctor.model import Check, Line, Once, failed, ok, skipped, unseen, warning
from plugin.settings import PluginSettings
from services.devices.hardware.scan import Scanner
from services.devices.model import Card, Inventory, PluginMode, Problem
from services.devices.reasons import remedy
from services.devices.resources import advertise
from services.kubelet.checkpoint import pod_folders, read_checkpoint
from services.kubelet.pod_resources import active_pods
from services.kubelet.sockets import (
    KUBELET_SOCKET,
    checkpoint_file,
    plugins_folder,
    pod_resources_socket,
)
from services.names import DOMAIN, UNIT_RESOURCE
from services.node.permissions import Missing, Needs, missing
from services.process.errors import KubeletError
from services.process.text import plain

CONNECT_SECONDS: Final = 2.0

OURS: Final = re.compile(r"accelbind-[0-9a-f]{8}-[0-9]{1,9}\.sock")
# Of the public suite, by resource; of the b<>com plugin
_PUBLIC: Final = re.compile(r"fpga\.intel\.com-.*\.sock|accelerator\.sock")
_RESOURCES: Final = (f"{DOMAIN}/", UNIT_RESOURCE)
_NODE_REASONS: Final = "node-"

_NOT_LISTENING: Final = {
    errno.ENOENT: "missing",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ECONNREFUSED: "nobody listens on it",
}


@dataclass(slots=True)
class Node:
    """The node that is looked at.

    Args:
        options: As a plugin on it has them.
        mode: Gives its mode, as far as that can be told.
    """

    options: PluginSettings
    mode: Once[PluginMode]
    inventory: Once[Inventory] = field(init=False)

    def __post_init__(self) -> None:
        self.inventory = Once(Scanner(self.options.root).scan)

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("node.driver", "Is the driver of the cards loaded?", self.driver),
            Check("node.cards", "Can all cards be read, and are they well?", self.cards),
            Check("node.device-nodes", "Has each its node in /dev?", self.device_nodes),
            Check("node.kubelet", "Does the kubelet take registrations?", self.kubelet),
            Check("node.plugin-sockets", "Does one plugin serve, and no other?", self.sockets),
            Check("node.checkpoint", "Can the kubelet's checkpoint be read?", self.checkpoint),
            Check("node.pod-resources", "Does the kubelet say who has what?", self.pod_resources),
            Check("node.pod-logs", "Can pods be told from their log folders?", self.pod_logs),
            Check("node.access", "May this user look at all of it?", self.access),
        ]

    # The cards --------------------------------------------------------------------------------

    def driver(self) -> Iterator[Line]:
        """Whether there are cards under a driver."""
        if self.mode() is PluginMode.UNITS:
            yield skipped("mode units needs none")
            return
        inventory = self.inventory()
        for problem in inventory.problems:
            yield failed(plain(problem.message, 500), remedy(problem.reason))
        for driver in sorted({card.driver for card in inventory.cards}):
            count = sum(card.driver == driver for card in inventory.cards)
            yield ok(f"{count} card{'s' if count != 1 else ''} under the driver {driver}")

    def cards(self) -> Iterator[Line]:
        """What is wrong with each card, its engine and its ports."""
        if self.mode() is PluginMode.UNITS:
            yield skipped("mode units has none")
            return
        cards = self.inventory().cards
        if not cards:
            yield skipped("there is none")
        by_card = self._of_devices()
        for card in cards:
            lines = [*_of_card(card), *by_card.get(card.name, ())]
            yield from lines or [ok(f"{card.name}: {_described(card)}")]

    def _of_devices(self) -> dict[str, list[Line]]:
        """What only shows in the devices that cards make, such as a port without an engine."""
        inventory = self.inventory()
        told = {problem for card in inventory.cards for _, problem in _problems(card)}
        found: dict[str, list[Line]] = {}
        tree = advertise(inventory, self.mode(), units=self.options.units)
        for device in (*tree.devices(), *tree.not_offered):
            for problem in device.reasons:
                if problem not in told:
                    told.add(problem)
                    line = failed(
                        f"{device.card}: {plain(problem.message, 400)}", remedy(problem.reason)
                    )
                    found.setdefault(device.card, []).append(line)
        return found

    def device_nodes(self) -> Iterator[Line]:
        """What is wrong with device nodes."""
        cards = self.inventory().cards if self.mode() is not PluginMode.UNITS else ()
        if not cards:
            yield skipped("there are no cards")
            return
        bad = False
        for _, problem in (each for card in cards for each in _problems(card)):
            if problem.reason.startswith(_NODE_REASONS):
                bad = True
                yield failed(problem.message, remedy(problem.reason))
        if not bad:
            yield ok(f"{sum(map(_count_nodes, cards))} below {self.options.root / 'dev'}")

    # The kubelet ------------------------------------------------------------------------------

    def kubelet(self) -> Iterator[Line]:
        """Whether the kubelet listens where plugins register."""
        folder = plugins_folder(self.options.kubelet_dir)
        where = "or name its folder with --kubelet-dir"
        if not _is_folder(folder):
            yield failed(f"{folder} is no folder", f"start the kubelet, {where}")
            return
        path = folder / KUBELET_SOCKET
        match listens(path):
            case "":
                yield ok(f"it listens on {path}")
            case "missing":
                yield failed(
                    f"{path} isn't there", f"start the kubelet (systemctl status kubelet), {where}"
                )
            case "denied":
                yield unseen(f"{path}: user {os.geteuid()} may not connect", "run it as root")
            case why:
                yield failed(
                    f"{path}: {why}",
                    "restart the kubelet; its log tells why it ended (journalctl -u kubelet)",
                )

    def sockets(self) -> Iterator[Line]:
        """Who serves in the kubelet's folder."""
        folder = plugins_folder(self.options.kubelet_dir)
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is needed
        except FileNotFoundError:
            yield skipped(f"{folder} isn't there")
            return
        alive = [name for name in names if OURS.fullmatch(name) and not listens(folder / name)]
        plugins = {name.split("-")[1] for name in alive}
        if len(plugins) > 1:
            yield failed(
                f"{len(plugins)} plugins of ours serve here",
                "one DaemonSet too many: kubectl get daemonset -A; or a plugin that runs by hand",
            )
        for name in names:
            if _PUBLIC.fullmatch(name) and not listens(folder / name):
                yield failed(
                    f"{folder / name}: another FPGA plugin serves here",
                    "the kubelet keeps the one that registered last: end it, see"
                    " docs/migration.md; if it comes back, an operator re-creates it",
                )
        if not alive:
            yield warning(f"no plugin of ours serves in {folder}", "start it: accelbind plugin")
        elif len(plugins) == 1:
            yield ok(f"{len(alive)} socket{'s' if len(alive) != 1 else ''} of one plugin answer")

    def checkpoint(self) -> Iterator[Line]:
        """What the kubelet has allocated."""
        path = checkpoint_file(self.options.kubelet_dir)
        try:
            entries = read_checkpoint(path)
        except KubeletError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                yield skipped(f"{path} isn't there: no container has had a device yet")
            elif isinstance(error.__cause__, PermissionError):
                yield unseen(str(error), "run it as root")
            else:
                yield failed(
                    str(error),
                    "restart the kubelet, which writes it anew; keep a copy for who looks into it",
                )
            return
        ours = [entry for entry in entries if entry.resource.startswith(_RESOURCES)]
        yield ok(f"{len(ours)} allocation{'s' if len(ours) != 1 else ''} of ours in {path}")

    def pod_resources(self) -> Iterator[Line]:
        """Whether the kubelet says who has which device."""
        path = pod_resources_socket(self.options.kubelet_dir)
        match listens(path):
            case "":
                try:
                    pods = asyncio.run(active_pods(path, seconds=CONNECT_SECONDS * 2))
                except KubeletError as error:
                    yield failed(str(error), "restart the kubelet; its log: journalctl -u kubelet")
                    return
                held = [each for pod in pods for each in pod.held]
                count = sum(each.resource.startswith(_RESOURCES) for each in held)
                yield ok(f"{path} answers: {count} holdings of ours")
            case "missing":
                yield failed(
                    f"{path} isn't there",
                    "start the kubelet; with another --root-dir it has that folder there: in a pod"
                    " mount that one (components/kubelet-root)",
                )
            case "denied":
                yield unseen(f"{path}: user {os.geteuid()} may not connect", "run it as root")
            case why:
                yield failed(f"{path}: {why}", "restart the kubelet")

    def pod_logs(self) -> Iterator[Line]:
        """Whether UIDs can be told from log folders."""
        path = self.options.pod_logs_dir
        try:
            count = len(pod_folders(path))
        except KubeletError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                yield ok(
                    f"{path} isn't there: pods are found by their devices, except those in which"
                    " only an init container has devices"
                )
            elif isinstance(error.__cause__, PermissionError):
                yield unseen(str(error), "run it as root")
            else:
                yield warning(str(error), "init containers that have devices are unknown")
            return
        yield ok(f"{count} pods in {path}")

    # Us ---------------------------------------------------------------------------------------

    def access(self) -> Iterator[Line]:
        """What this user may not look at; what the plugin lacks, it says itself."""
        options = self.options
        needs = Needs(
            mode=self.mode(),
            root=options.root,
            kubelet_dir=options.kubelet_dir,
            pod_logs_dir=options.pod_logs_dir,
            clear_errors=False,
            serve=False,
        )
        lacking: tuple[Missing, ...] = missing(needs, self.inventory())
        for each in lacking:
            yield unseen(f"{each.path}: no permission to {each.permission}", each.remedy)
        if not lacking:
            yield ok(f"as user {os.geteuid()}")


def listens(path: Path) -> str:
    """Why nobody can be talked to on a socket; empty if somebody listens.

    `missing` and `denied` are for the caller to explain; anything else is a clause.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - one question, one call
            return "that is no socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(str(path))
    except TimeoutError:
        return "it doesn't answer"
    except OSError as error:
        return _NOT_LISTENING.get(error.errno or 0) or str(error.strerror or error)
    return ""


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - is_dir would hide a denial
    except (FileNotFoundError, NotADirectoryError):
        return False


def _of_card(card: Card) -> Iterator[Line]:
    for serious, problem in _problems(card):
        if problem.reason.startswith(_NODE_REASONS):
            continue  # told by another check
        what = f"{card.name}: {plain(problem.message, 400)}"
        if serious:
            yield failed(what, remedy(problem.reason))
        elif problem.message.endswith("Permission denied"):
            yield unseen(what, "run it as root")
        else:
            yield warning(what, remedy(problem.reason))


def _problems(card: Card) -> Iterator[tuple[bool, Problem]]:
    """What is wrong, and whether it makes something unhealthy."""
    if card.failure is not None:
        yield True, card.failure
    yield from ((False, problem) for problem in card.problems)
    if card.fme is not None:
        yield from ((True, problem) for problem in card.fme.problems)
    for port in card.ports:
        yield from ((True, problem) for problem in port.problems)


def _described(card: Card) -> str:
    ports = len(card.ports)
    region = f", interface {card.fme.interface_id}" if card.fme and card.fme.interface_id else ""
    return f"{ports} port{'s' if ports != 1 else ''}{region}"


def _count_nodes(card: Card) -> int:
    return len(card.ports) + (card.fme is not None)
