"""What Prometheus wants of names and helps, as its own `promtool check metrics` has it."""

import re
from typing import Final

UNITS: Final = ("_celsius", "_watts", "_seconds", "_bytes", "_ratio", "_info")
UNITLESS: Final = frozenset(
    {
        "accelbind_devices",
        "accelbind_device_healthy",
        "accelbind_device_reason",
        "accelbind_device_holder",
        "accelbind_card_errors",
        "accelbind_hanging_reads",
        "accelbind_hanging_sensors",
        "accelbind_permission_missing",
        "accelbind_node_mode",
        "accelbind_node_mode_annotation_invalid",
    }
)
"""Gauges that count, or are 0 or 1."""


def lint(text: str) -> list[str]:
    """A sentence for each thing that is not as it should be, of what is ours in an exposition."""
    kinds = dict(re.findall(r"^# TYPE (accelbind_\S+) (\w+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (accelbind_\S+) (.*)$", text, re.MULTILINE))
    kinds = {name: kind for name, kind in kinds.items() if not name.endswith("_created")}
    found = []
    for name, kind in kinds.items():
        said = helps.get(name, "")
        if not re.fullmatch(r"accelbind(_[a-z]+)+", name):
            found.append(f"{name}: words of small letters, please")
        if (kind == "counter") != name.endswith("_total"):
            found.append(f"{name}: counters end in _total, and nothing else does")
        if kind != "counter" and not (name in UNITLESS or name.endswith(UNITS)):
            found.append(f"{name}: no unit")
        if not (said[:1].isupper() and said.endswith((".", ")."))):
            found.append(f"{name}: no sentence: {said!r}")
    samples = re.findall(r"^(accelbind_[a-z_]+(?:\{.*\})?) ", text, re.MULTILINE)
    found += [f"{each} is there twice" for each in set(samples) if samples.count(each) > 1]
    return found if kinds else ["nothing of ours"]
