"""Settings of a process: one pydantic-settings model, filled from flags and variables.

A setting is one field: its flag, its variable (`ACCELBIND_SCAN_INTERVAL` for `scan_interval`), its
help, its row in the reference and its line of `--print-config` follow from the name, the type, the
default, the docstring and the `Flag`. A flag wins over the variable, and that over the default.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.process.errors import InvalidSettings
from services.process.listening import ALL_ADDRESSES

PREFIX: Final = "ACCELBIND_"
PROCESS: Final = "Process"

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|[smhd]?)")
_LONGEST: Final = 1e10
"""Seconds; longer times exceed all bounds."""


# Types of fields ----------------------------------------------------------------------------------


def duration(value: object) -> float:
    """Read a time such as `90d`, `12h`, `5s` or `200ms` as seconds; a bare number counts them."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return min(float(match[1]) * _UNITS[match[2] or "s"], _LONGEST)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return min(float(value), _LONGEST)
    raise ValueError("a time is a number with ms, s, m, h or d, such as 5s or 90d")


def duration_text(seconds: float) -> str:
    """A time in the form that `duration` reads."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    whole = milliseconds // 1000
    for unit in ("d", "h", "m"):
        if whole and whole % _UNITS[unit] == 0:
            return f"{whole // int(_UNITS[unit])}{unit}"
    return f"{whole}s"


def _split_commas(value: object) -> object:
    if isinstance(value, str):
        return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)
    return value


Seconds = Annotated[
    float, BeforeValidator(duration), PlainSerializer(duration_text, when_used="json")
]
"""A time, which the code holds in seconds."""
CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]
Port = Annotated[int, Field(ge=0, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]

TIME: Final = "TIME"
"""Metavar of all times."""
UNIX: Final = "unix:"
"""Before the path of a socket."""
SERVICE_ACCOUNT: Final = "the pod's service account"
"""The default of `--api-server` in words."""


def api_server_address(value: str) -> str:
    """The same address of an API server; a `ValueError` unless no credentials are needed there."""
    if value and not re.fullmatch(r"unix:.+|http://[^/@?#\s]+/?", value):
        raise ValueError(
            f"{value!r:.100} must be unix:PATH, the socket of kubectl proxy --unix-socket=PATH, or"
            " the http://HOST:PORT of a kubectl proxy"
        )
    return value


ApiServer = Annotated[str, AfterValidator(api_server_address)]


@dataclass(frozen=True, slots=True)
class Flag:
    """How a setting's flag looks in `--help`; part of the field's annotation."""

    metavar: str = ""
    group: str = "Options"
    """The panel that it is in."""
    default: str = ""
    """The default in words, where the field has none or computes it."""
    short: str = ""


def flag_of(field: FieldInfo) -> Flag:
    """How the flag of a field looks."""
    return next((each for each in field.metadata if isinstance(each, Flag)), Flag())


def default_text(field: FieldInfo) -> str:
    """The default of a field as a user would write it, or in words; empty without one."""
    flag, default = flag_of(field), field.default
    if flag.default or default in (None, (), PydanticUndefined):
        return flag.default
    return value_text(default, field)


def value_text(value: Any, field: FieldInfo) -> str:  # noqa: ANN401 - of the field's type
    """A value or a bound of a field as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if flag_of(field).metavar == TIME:
        return duration_text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


# The models ---------------------------------------------------------------------------------------


class Settings(BaseSettings):
    """Base class of the settings of a process; `load` reports errors in one sentence."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        enable_decoding=False,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )


class ProcessSettings(Settings):
    """The settings of every process."""

    metrics_host: Annotated[str, Flag("ADDRESS", PROCESS)] = ALL_ADDRESSES
    """Address for metrics and probes, plain HTTP; `::` is all addresses, IPv6 and IPv4."""
    metrics_port: Annotated[Port, Flag("PORT", PROCESS)] = 9101
    """Port for metrics and probes; 0 takes any free one."""
    ports_file: Annotated[Path | None, Flag("FILE", PROCESS)] = None
    """File to write the ports in use into, as JSON."""
    log_level: Annotated[LogLevel, Flag("LEVEL", PROCESS)] = "info"
    """The least severe level to log: debug, info, warning or error."""
    log_format: Annotated[LogFormat, Flag("FORMAT", PROCESS)] = "auto"
    """json, console, or auto: console on a terminal."""


S = TypeVar("S", bound=Settings)


def load(
    model: type[S],
    given: Mapping[str, object],
    *,
    others: Callable[[], Collection[str]] = frozenset,
) -> S:
    """Fill a model from variables and the `given` flags; None and an empty list are not given.

    The variables of the fields that `others` returns may be there too.

    Raises:
        InvalidSettings: In one sentence, with the flag or variable: it is unknown, or does not fit.
    """
    values = flag_values(given)
    refuse_unknown_variables(model.model_fields, others)
    try:
        return model(**values)
    except ValidationError as error:
        raise InvalidSettings(_sentence(model, error, values)) from error


def flag_values(given: Mapping[str, object]) -> dict[str, Any]:
    """The flags that were given; repeated ones are joined with commas."""
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None and value != []
    }


def render(settings: Settings, given: Mapping[str, object]) -> str:
    """The settings as YAML, each with the source of its value."""
    values = flag_values(given)
    return "".join(
        f"{dashed(name)}: {_scalar(value)}  # {_origin(name, values) or 'default'}\n"
        for name, value in settings.model_dump(mode="json").items()
    )


def dashed(name: str) -> str:
    """The name of a field in its flag."""
    return name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + name.upper()


def _scalar(value: object) -> str:
    flow = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return flow.removesuffix("\n").removesuffix("\n...")


def refuse_unknown_variables(
    own: Collection[str], others: Callable[[], Collection[str]] = frozenset
) -> None:
    """Refuse an `ACCELBIND_*` variable that no process has: a misspelled limit would be missing."""
    # pydantic-settings ignores them. Kubernetes sets `ACCELBIND_METRICS_PORT=tcp://…` for a Service
    # `accelbind-metrics`, so the manifests have `enableServiceLinks: false`.
    present = {name.removeprefix(PREFIX).lower() for name in os.environ if name.startswith(PREFIX)}
    foreign = present.difference(own)
    if not foreign:
        return
    # Containers of one pod often share their environment. Only now, since it imports all settings.
    known = {*own, *others()}
    for name in sorted(foreign - known):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {variable(near[0])}?" if near else ""
        raise InvalidSettings(f"the environment variable {variable(name)} is not a setting{hint}")


# Errors -------------------------------------------------------------------------------------------

_BOUNDS: Final = {
    "greater_than_equal": ("must be at least", "ge"),
    "greater_than": ("must be more than", "gt"),
    "less_than_equal": ("must be at most", "le"),
}


def _origin(name: str, values: Mapping[str, object]) -> str:
    """The flag or variable that a value comes from; empty for a default."""
    if name in values:
        return f"--{dashed(name)}"
    return variable(name) if os.environ.get(variable(name)) else ""


def _sentence(model: type[Settings], error: ValidationError, values: Mapping[str, object]) -> str:
    parts = []
    for issue in error.errors(include_url=False):
        if not issue["loc"]:
            parts.append(issue["msg"].removeprefix("Value error, "))
            continue
        name = str(issue["loc"][0])
        where = _origin(name, values) or f"--{dashed(name)}"
        if issue["type"] == "missing":
            parts.append(f"{where} is required")
        # Otherwise its default follows from another field, which has an issue of its own.
        elif issue["type"] != "default_factory_not_called":
            reason = _reason(issue, model.model_fields[name])
            parts.append(f"{where}: {reason} (it is {issue['input']!r:.80})")
    return "; ".join(parts)


def _reason(issue: Mapping[str, Any], field: FieldInfo) -> str:
    if bound := _BOUNDS.get(issue["type"]):
        words, key = bound
        return f"{words} {value_text(issue['ctx'][key], field)}"
    reason: str = issue["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return reason[:1].lower() + reason[1:]
