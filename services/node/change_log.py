"""Logs what changed on this node, each change once."""

from collections.abc import Iterator, Mapping

import structlog

from services.devices.model import Device, Inventory, Problem
from services.devices.resources import AdvertisedResources

log = structlog.get_logger(room="plugin")


def log_inventory_changes(before: Inventory | None, now: Inventory) -> None:
    """Logs new problems of the node and new remarks on its cards."""
    known = set(_remarks(before)) if before is not None else set()
    for card, problem in _remarks(now):
        if (card, problem) not in known:
            if card:
                log.info(
                    "remark on a card", card=card, reason=problem.reason, message=problem.message
                )
            else:
                log.warning("problem of the node", reason=problem.reason, message=problem.message)
    if before is not None and before.problems and not now.problems:
        log.info("problem of the node resolved", cards=len(now.cards))


def _remarks(inventory: Inventory) -> Iterator[tuple[str, Problem]]:
    for problem in inventory.problems:
        yield "", problem
    for card in inventory.cards:
        for problem in card.problems:
            yield card.name, problem


def log_advertised_changes(before: AdvertisedResources, now: AdvertisedResources) -> None:
    """Logs devices that came, went, or whose health changed."""
    old, new = _by_id(before), _by_id(now)
    for key in sorted(old.keys() - new.keys()):
        log.warning("device gone", device=key, resource=old[key].resource)
    for key, device in sorted(new.items()):
        _log_device(old.get(key), device)


def _by_id(tree: AdvertisedResources) -> Mapping[str, Device]:
    return {device.id: device for device in (*tree.not_offered, *tree.devices())}


def _log_device(before: Device | None, now: Device) -> None:
    bound = log.bind(device=now.id, resource=now.resource, card=now.card)
    if before is not None and before.resource != now.resource:
        bound.info("device moved", was=before.resource)
    if before is not None and before.reasons == now.reasons:
        return
    if now.healthy:
        bound.info("device found" if before is None else "device healthy again")
        return
    known = set(before.reasons) if before is not None else set()
    event = "device unhealthy" if now.resource else "device can't be offered"
    for problem in now.reasons:
        if problem not in known:
            bound.warning(event, reason=problem.reason, message=problem.message)
