"""What containers need of a node for devices by VFIO."""

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from accelbind.doctor.model import AS_ROOT, Line, ok, skipped, unseen, warning
from accelbind.doctor.node import Node
from services.kube.access import find_access
from services.node.table import Row

_GUIDE: Final = "docs/administrators.md, Locked memory"
_RUNTIMES: Final = frozenset({"containerd", "crio"})
_CONFIGURATIONS: Final = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/*.toml",
    "etc/crio/crio.conf",
    "etc/crio/crio.conf.d/*",
)
_OWNERSHIP: Final = "device_ownership_from_security_context"
_IS_OWNERSHIP_ON: Final = re.compile(rf"^\s*{_OWNERSHIP}\s*=\s*true\b", re.MULTILINE)
_LOCKED: Final = re.compile(r"^Max locked memory\s+(\S+)", re.MULTILINE)


def check_vfio(node: Node) -> Iterator[Line]:
    """Can containers use devices through VFIO?"""
    root, rows = node.options.root, node.table.devices
    if not any("vfio" in each for row in rows for each in (*row.nodes, *_reasons(row))):
        yield skipped("no device here is an OFS card's, or of a device type with nodes of VFIO")
        return
    yield _locked_memory(root / "proc")
    yield _ownership(root)


def _reasons(row: Row) -> list[str]:
    # A node that is missing is in the text only; a near miss may name the driver.
    return [each.text if each.code == "node-missing" else each.code for each in row.reasons]


def _locked_memory(proc: Path) -> Line:
    # Containers inherit the limit from the runtime.
    limit = _limit_of_runtime(proc)
    if limit is None and find_access() is not None:  # in a pod, which has it from its runtime too
        own = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        limit = "unlimited" if own == resource.RLIM_INFINITY else str(own)
    if limit is None:
        return unseen(f"no container runtime is in {proc}: its memlock limit is unknown")
    if limit == "unlimited":
        return ok("containers may lock any amount of memory")
    text = f"containers may lock {limit} bytes of memory, and DMA through VFIO locks what it maps"
    return warning(text, f"raise the memlock limit of the container runtime: {_GUIDE}")


def _limit_of_runtime(proc: Path) -> str | None:
    for name in proc.glob("[0-9]*/comm"):
        try:
            if name.read_text().strip() in _RUNTIMES:
                match = _LOCKED.search(name.with_name("limits").read_text())
                return match[1] if match else None
        except OSError:  # it has ended
            continue
    return None


def _ownership(root: Path) -> Line:
    # Whether the runtime gives device nodes to the container's user.
    files = [path for each in _CONFIGURATIONS for path in sorted(root.glob(each))]
    try:
        texts = [path.read_text(errors="replace") for path in files]
    except OSError as error:
        return unseen(f"{error.filename} can't be read by user {os.geteuid()}", AS_ROOT)
    if any(map(_IS_OWNERSHIP_ON.search, texts)):
        return ok(f"{_OWNERSHIP} is on")
    if not files:
        text = f"no configuration of containerd or CRI-O is below {root}: {_OWNERSHIP} is unknown"
        return unseen(text, "run the doctor on the node, not in a pod")
    return warning(
        f"{_OWNERSHIP} is not on: programs that do not run as root can't open device nodes",
        "set it in the configuration of the runtime: docs/administrators.md",
    )
