"""What is left over on a node that a DRA driver serves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from accelbind.doctor.model import Line, ok, skipped, warning
from accelbind.doctor.node import Node
from plugin.dra.book import FOLDER, ClaimBook
from services.containers.holder_source import HolderSource
from services.devices.dra import DRIVER
from services.kubelet.checkpoint import prepared_claims
from services.kubelet.sockets import (
    checkpoint_file,
    dra_checkpoint_file,
    dra_socket,
)
from services.process.blocking import BlockingCalls
from services.process.errors import KubeletError
from services.process.text import count, plain

_GUIDE: Final = "docs/dra.md"


def check_dra(node: Node) -> Iterator[Line]:
    """Is nothing left over from the device plugin or of claims?"""
    folder = node.options.kubelet_dir
    claims = {
        each.claim.uid: str(each.claim)
        for each in ClaimBook(node.options.state_dir / FOLDER).entries()
    }
    if not dra_socket(folder, DRIVER).exists() and not claims:
        yield skipped("no DRA driver of accelbind serves this node")
        return
    yield from _left_claims(folder, claims)
    yield from _left_of_plugin(node)
    yield ok(f"{count(len(claims), 'claim')} on this node")


def _left_claims(folder: Path, claims: dict[str, str]) -> Iterator[Line]:
    # The kubelet will never give them back.
    try:
        known = prepared_claims(dra_checkpoint_file(folder), DRIVER)
    except KubeletError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        known = {}  # the kubelet has prepared no claim yet
    for uid, claim in claims.items():
        if uid not in known:
            yield warning(
                f"{plain(claim)} has devices here, and the kubelet does not know it",
                "it is given back 5 minutes after nothing uses it any more, if its pods are known"
                f" (docs/dra.md); sooner, once no container uses it: accelbind dra release {uid}",
            )


def _left_of_plugin(node: Node) -> Iterator[Line]:
    folder = node.options.kubelet_dir
    if not checkpoint_file(folder).exists():  # no plugin ever served here
        return
    holders = HolderSource(  # as the driver's: the kubelet's checkpoint names pods that are gone
        kubelet_dir=folder,
        pod_logs_dir=node.options.pod_logs_dir,
        calls=BlockingCalls(),
        domains=node.options.resource_domain,
        forgets_gone=True,
    )
    held = len(asyncio.run(holders.read()))
    if held:
        yield warning(
            f"{count(held, 'device')} of this node {'is' if held == 1 else 'are'} not published,"
            " because pods still have them from the device plugin",
            f"they are once the pods have ended and are deleted: {_GUIDE}",
        )
