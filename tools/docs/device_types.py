"""`docs/device-type.schema.json`: the JSON Schema of device types, for editors."""

import json
from typing import Final

from services.devices.types.parsing import schema

PATH: Final = "docs/device-type.schema.json"


def page() -> str:
    """Return the file."""
    return f"{json.dumps(schema(), indent=2)}\n"
