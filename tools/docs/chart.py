"""The values in the chart's README, from the comments of `manifests/values.yaml`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.docs.texts import table, written_part

PATH: Final = "manifests/README.md"
VALUES: Final = Path(__file__).parents[2] / "manifests" / "values.yaml"
_KEY: Final = re.compile(r"( {0,2})([A-Za-z]+):(.*)")


def page() -> str:
    """Return the README: what is written by hand, and the values."""
    text = VALUES.read_text(encoding="utf-8")
    before = text.partition("\npools:")[0].rpartition("\n\n")[2]
    lines = [line.removeprefix("#").removeprefix(" ") for line in before.splitlines()]
    prose = [line for line in lines if not line.startswith("  ")]
    fields = [line[2:] for line in lines if line.startswith("  ")]
    block = "\n".join(fields)
    return (
        written_part(PATH, "## Values")
        + "## Values\n\n"
        + table(("Value", "Default", "Meaning"), _rows(text))
        + "\n## Pools\n\n"
        + "\n".join(prose).strip()
        + f"\n\n```yaml\n{block}\n```\n"
    )


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield each value with its default and its comment."""
    defaults: dict[str, Any] = yaml.safe_load(text)
    section, comments = "", list[str]()
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comments.append(line.strip().removeprefix("#").strip())
            continue
        if (match := _KEY.fullmatch(line)) and match[2] != "pools":
            indent, key, inline = match.groups()
            section = section if indent else key
            if indent or inline:
                value = defaults[section][key] if indent else defaults[key]
                path = f"{section}.{key}" if indent else key
                yield f"`{path}`", f"`{json.dumps(value)}`", " ".join(comments)
        comments.clear()
