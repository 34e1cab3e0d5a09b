"""`docs/reference.md`: settings, commands, metrics, reasons and names, from the code."""

from typing import Final

from services.process.settings import PREFIX
from tools.docs import codes, commands, metrics

PATH: Final = "docs/reference.md"

_HEAD: Final = """\
<!-- Generated from the code by `make docs`. -->

# Reference

For guides see the [documentation home](README.md), for
symptoms see [troubleshooting](troubleshooting.md), for fields of mappings see
[custom resources](crds.md).
"""

_SETTINGS: Final = f"""\
A flag overrides its variable, and the variable overrides the default. Unknown flags and unknown
`{PREFIX}*` variables are errors. `--print-config` shows the settings and their sources. A time is a
number with `ms`, `s`, `m`, `h` or `d`, such as `5s`; a bare number counts seconds. A list is
separated by commas; its flag may also be repeated. The settings are on the pages of
[`webhook`](commands/webhook.md), [`plugin`](commands/plugin.md) and
[`certs run`](commands/certs.md#accelbind-certs-run).
"""

_METRICS: Final = """\
At `/metrics` on the metrics port of each process. The client's own `…_created` series are omitted.
"""

_HEALTH: Final = """\
Label `reason` of `accelbind_devices` and `accelbind_device_reason`, and `reasons` in `accelbind
devices -o json`. `accelbind doctor` uses the same reasons.
"""

_NODES: Final = """\
[Device types](device-types.md) never lead to these nodes of the host, by whatever name. A node is
known by its class in sysfs, its number and its name. Nodes of class `misc` that are not listed
below are handed out only if the setting names them: `--allow-nodes=rfkill`.
"""

_EVENTS: Final = """\
`kubectl get events -A --field-selector reason=…`. Some Warnings are named after a
[health reason](#health).
"""


def page() -> str:
    parts = [
        _HEAD,
        *("## Commands\n", commands.overview()),
        *("## Settings\n", _SETTINGS),
        *("## Metrics\n", _METRICS, *metrics.sections()),
        *("## Answers to reviews\n", *codes.admission()),
        *("## Health\n", _HEALTH, *codes.health()),
        *("## Device nodes that are not handed out\n", _NODES, *codes.nodes()),
        *("## Events\n", _EVENTS, codes.events()),
        *("## Exit codes\n", codes.exits()),
        *("## Errors of the plugin's calls\n", codes.errors()),
        *("## Annotations and variables\n", codes.names()),
    ]
    return "\n".join(parts)
