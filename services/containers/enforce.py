"""When the node asks the mappings: the setting, apart from what is asked.

Settings are read by processes that have no need of mappings themselves.
"""

from enum import StrEnum

from services.devices.model import PluginMode

_PROGRAMMING = frozenset({PluginMode.REGION, PluginMode.REGIONDEVEL})
_MAPPED = _PROGRAMMING | {PluginMode.AF}


class Enforce(StrEnum):
    """When mappings are asked on the node, as `--enforce-mappings` has it."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def is_enforced(enforce: Enforce, mode: PluginMode) -> bool:
    """Tell whether a node of this mode asks."""
    if enforce is Enforce.NEVER:
        return False
    return mode in (_MAPPED if enforce is Enforce.ALWAYS else _PROGRAMMING)
