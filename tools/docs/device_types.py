"""`docs/device-type.schema.json`: the JSON Schema of device types, for editors."""

import json
from typing import Final

import msgspec

from services.devices.types.model import DeviceType

PATH: Final = "docs/device-type.schema.json"


def page() -> str:
    return f"{json.dumps(msgspec.json.schema(DeviceType), indent=2)}\n"
