"""When the node checks mappings: the setting `--enforce-mappings`.

It is apart from `permission`, so that reading the settings doesn't import the mappings.
"""

from enum import StrEnum

from services.devices.model import PluginMode

_PROGRAMMING = frozenset({PluginMode.REGION, PluginMode.REGIONDEVEL})
_MAPPED = _PROGRAMMING | {PluginMode.AF}


class Enforce(StrEnum):
    """When the node checks mappings, as `--enforce-mappings` has it."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def is_enforced(enforce: Enforce, mode: PluginMode) -> bool:
    """Whether a node in this mode checks mappings."""
    if enforce is Enforce.NEVER:
        return False
    return mode in (_MAPPED if enforce is Enforce.ALWAYS else _PROGRAMMING)
