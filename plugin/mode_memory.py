"""The mode that was served last on this node, from what `services.node.offer_memory` keeps of it.

It counts at a start at which the API server doesn't tell the node's annotation: a plugin that is
started again during an outage must not offer the ports of regions that containers have.
"""

import json
import os
import stat
from pathlib import Path

from services.devices.model import PluginMode
from services.node.offer import MAX_BYTES
from services.node.offer_memory import FILE


def last_mode(folder: Path) -> PluginMode | None:
    """The mode that was served last; None where nobody can tell.

    Args:
        folder: The kubelet's folder of device plugins.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(folder / FILE, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return PluginMode(json.loads(file.read(MAX_BYTES))["mode"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
