"""Refuses to work on a port or a card that a container or a claim has, or may be given."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from accelbind.devices.source import NoAnswer, PlainPort, served_folder
from plugin.dra.book import FOLDER as CLAIMS
from plugin.dra.book import ClaimBook, ClaimHolders
from plugin.settings import PluginSettings
from services.containers.holders import Holders
from services.devices.hardware.scan import scan
from services.devices.held import Parts, card_resources, held_parts, port_resources
from services.devices.model import Card, Inventory
from services.kubelet.values import HEALTHY
from services.node.reading import holder_source
from services.node.table import Row
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, HardwareError, KubeletError
from services.process.text import listing
from services.programming.port import device_name, find_card, find_port
from services.programming.rebinding import is_unbound, unlisted_ports

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Interruption:
    """The users of a card that are interrupted without its driver."""

    card: str
    """Its name."""
    address: str
    devices: list[str]
    """Its FME and its ports."""
    resources: list[str]
    """The devices of it that the plugin or DRA driver offers, each as `RESOURCE (DEVICE)`."""
    holders: list[str]
    """Containers and claims that have a part of it."""
    unknown: str
    """What of this is unknown, and why; empty if nothing is."""
    unlisted: int = 0
    """Ports that it says it has and that are on no function; those that were released come back."""


def interruption(device: str, settings: PluginSettings) -> Interruption:
    """Name the users that are interrupted if the driver of a device's card is rebound."""
    inventory, address = scan(settings.root), device_name(device)
    if is_unbound(settings.root, inventory, address):
        return Interruption(address, address, [], [], [], "")
    card = find_card(inventory, device)
    ports = [port.name for port in inventory.ports(card)]
    devices = [card.fme.name, *ports] if card.fme else ports
    offered, holders, unknown = [], [], []
    try:
        offered = [f"{each.resource} ({each.device})" for each in _offered(card, settings)]
    except DeviceBusy as error:
        unknown.append(str(error))
    try:
        holders = _card_holders(inventory, card, settings)
    except DeviceBusy as error:
        unknown.append(str(error))
    return Interruption(
        card.name,
        card.address,
        devices,
        offered,
        holders,
        "; ".join(unknown),
        unlisted_ports(settings.root, inventory, inventory.physical(card)),
    )


def require_free(inventory: Inventory, port: str, settings: PluginSettings) -> None:
    """Raise DeviceBusy if a container or a claim has a port, or may have it."""
    place = find_port(inventory, port)

    def is_in(held: Parts) -> bool:
        return bool(port_resources(held, inventory, place.card, place.port))

    _require_none(port, _who_has(port, is_in, settings))


def require_card_free(inventory: Inventory, card: Card, settings: PluginSettings) -> None:
    """Raise DeviceBusy if a container or a claim has a part of a card, or may have it."""
    _require_none(_part_of(card), _card_holders(inventory, card, settings))


def _card_holders(inventory: Inventory, card: Card, settings: PluginSettings) -> list[str]:
    def is_in(held: Parts) -> bool:
        return bool(card_resources(held, inventory, card))

    return _who_has(_part_of(card), is_in, settings)


def _part_of(card: Card) -> str:
    return f"a part of card {card.name}"


def _require_none(held: str, holders: list[str]) -> None:
    if holders:
        raise DeviceBusy(
            f"{held} is held by {listing(holders)}: end that pod, or use --force; after the end of"
            " the pod the kubelet still names it, with a plugin on this node for up to a minute"
        )


def _who_has(what: str, is_in: Callable[[Parts], bool], settings: PluginSettings) -> list[str]:
    book = ClaimBook(settings.state_dir / CLAIMS)
    try:
        book.require_readable()
    except HardwareError as error:
        raise DeviceBusy(f"whether a claim has {what} is unknown: {error}") from error
    try:
        holders = asyncio.run(_holders(settings, book))
    except (KubeletError, HardwareError) as error:
        raise DeviceBusy(
            f"whether a container has {what} is unknown: {error}; name the kubelet's folder with"
            " --kubelet-dir; if no kubelet runs on this machine, use --force"
        ) from error
    having = (each for device, each in holders.items() if is_in(held_parts([device])))
    return sorted({str(holder) for each in having for holder in each})


def until_withdrawn(card: Card, settings: PluginSettings, *, seconds: float) -> None:
    """Wait until the plugin or DRA driver offers no device of a card as healthy.

    Raises:
        DeviceBusy: It still does after these seconds, or does not answer.
    """
    deadline = time.monotonic() + seconds
    while offered := [each.device for each in _offered(card, settings) if each.health == HEALTHY]:
        if time.monotonic() > deadline:
            raise DeviceBusy(
                f"the plugin on {PlainPort.of(settings)} still offers {listing(offered)}, so that a"
                " container may get it at any moment: is its --state-dir another one?"
            )
        time.sleep(_POLL_SECONDS)


def _offered(card: Card, settings: PluginSettings) -> list[Row]:
    port = PlainPort.of(settings)
    try:
        _, table = port.devices()
    except NoAnswer as error:
        if not (served := served_folder(settings.kubelet_dir)):
            return []  # nobody offers it
        raise DeviceBusy(
            f"whether a plugin offers {_part_of(card)} is unknown: one serves in {served}, but does"
            f" not answer on {port}: {error}; name the address of its pod with --metrics-host, or"
            " use --force"
        ) from error
    # In a pod, the root of this machine is mounted somewhere.
    if str(settings.root) not in ("/", table.root):
        return []
    return [each for each in table.devices if each.resource and each.card == card.name]


async def _holders(settings: PluginSettings, book: ClaimBook) -> Holders:
    source = holder_source(settings, BlockingCalls())
    await source.snapshot()  # has the names of the pods
    return await ClaimHolders(book, source).read()
