"""`docs/reference.md`: everything that has a name, from the code that has it."""

from typing import Final

from services.process.settings import PREFIX
from tools.docs import codes, commands, metrics, settings

PATH: Final = "docs/reference.md"

_HEAD: Final = """\
# Reference

Made from the code by `make docs`; a test compares the two. What to do with it all is told in the
[README](../README.md), by symptom in [troubleshooting](troubleshooting.md).
"""

_SETTINGS: Final = f"""\
A flag wins over its variable, the variable over the default. Unknown flags and unknown `{PREFIX}*`
variables are errors. `--print-config` shows the settings and where each comes from. A time is a
number with `ms`, `s`, `m`, `h` or `d` behind it, such as `5s`; a bare number counts seconds. A list
is one text with commas; its flag may also be repeated.
"""

_CHECKS: Final = """\
For `--only` and `--skip` of `accelbind doctor`, and `id` in its JSON.
"""

_METRICS: Final = """\
On the plain port of each process, at `/metrics`; the client's own `…_created` series are left out.
"""

_HEALTH: Final = """\
Labels `reason` of `accelbind_devices` and `accelbind_device_reason`, and `reasons` of `accelbind
devices -o json`. `accelbind doctor` says the same about what it finds.
"""

_EVENTS: Final = """\
`kubectl get events -A --field-selector reason=…`. Warnings whose reason is a code of
[health](#health) are spelled from it.
"""


def page() -> str:
    """The whole page."""
    parts = [
        _HEAD,
        *("## Settings\n", _SETTINGS, *settings.sections()),
        *("## Commands\n", *commands.sections()),
        *("## Checks of the doctor\n", _CHECKS, commands.checks()),
        *("## Metrics\n", _METRICS, *metrics.sections()),
        *("## Answers to reviews\n", *codes.admission()),
        *("## Health\n", _HEALTH, *codes.health()),
        *("## Events\n", _EVENTS, codes.events()),
        *("## Exit codes\n", codes.exits()),
        *("## Errors of the plugin's calls\n", codes.errors()),
        *("## Annotations and variables\n", codes.names()),
    ]
    return "\n".join(parts)
