"""Compare the contents of a claim's regions with what it requests."""

from plugin.dra.wants import Kind, Want
from services.devices.dra import fpga_name
from services.devices.health import unusable
from services.devices.model import Contents
from services.node.regions import RegionContents
from services.process.errors import ExternalFailure, NotAllowed
from services.process.text import plain
from services.programming.assignment import Region


def require_regions(want: Want, found: RegionContents) -> None:
    """Refuse a claim whose regions are those of other cards, or lack what isn't programmed."""
    for name, key in zip(want.devices, want.ids, strict=True):
        region = found.regions.get(key)
        # A driver that is loaded again may number its regions otherwise; `locate` follows.
        address = region.card.address if region else ""
        if address and fpga_name(address) != name:
            raise ExternalFailure(
                f"{want.who}: {plain(key)} is on card {address} now, and {name} isn't:"
                " Kubernetes retries"
            )
        if want.kind is not Kind.NEVER:
            continue
        if region is None or not region.ports:
            raise ExternalFailure(f"{plain(name)} ({plain(key)}) is gone or can't be read")
        _require_there(want, name, region, found.contents)


def _require_there(want: Want, name: str, region: Region, contents: Contents) -> None:
    function = want.functions[0]
    for port in region.ports:
        if disabled := unusable(port):
            raise ExternalFailure(f"{want.who}: {disabled}")
        programmed = contents.get(port.name)
        if programmed == "":
            content = "nothing that is known, since programming it has not succeeded"
        elif function in (port.afu_id, programmed):  # only our record tells OpenCL programs apart
            continue
        else:
            content = f"AFU {plain(port.afu_id, 48)}" if port.afu_id else "no known function"
        raise NotAllowed(
            f"{want.who}: {name} has {content} in {port.name}, and not AFU {function}, which"
            " its class wants there without programming: delete the pod; a new one gets"
            " another device"
        )
