"""Settings of a process: one typed model, filled from flags, environment and a file.

What counts, first hit wins: a flag, the variable `ACCELBIND_<FIELD>`, the key `<field>` (or
`<field-with-dashes>`) of the settings file, the model's default. Whatever is unknown is an error,
so that a misspelt limit is not a limit silently missing. The environment needs two allowances:

- Containers of one pod or shell often share it, so a variable of another accelbind process
  (`ENVIRONMENT`) is fine; any other `ACCELBIND_*` is an error that names the nearest known one.
- Kubernetes injects links to the Services of a namespace: for one called `accelbind-metrics`,
  `ACCELBIND_METRICS_PORT=tcp://10.0.0.7:9101` and some more. Those are not settings and are
  ignored (kubernetes.io/docs/tutorials/services/connect-applications-service, "Environment
  Variables").
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from services.process.errors import InvalidSettings, WorldError
from services.process.yaml import BrokenDocument, read_documents

PREFIX: Final = "ACCELBIND_"

ENVIRONMENT: Final = frozenset(
    {
        "bitstreams",
        "ca_lifetime",
        "ca_secret",
        "cdi",
        "cdi_dir",
        "clear_errors",
        "client_ca",
        "domain",
        "drain_seconds",
        "enforce_mappings",
        "healthy_after",
        "hook_path",
        "host",
        "host_root",
        "ignore_errors",
        "interval",
        "kubeconfig",
        "kubelet_dir",
        "lifetime",
        "log_format",
        "log_level",
        "mappings",
        "max_body",
        "max_power",
        "max_staleness",
        "max_temperature",
        "max_units",
        "metrics_host",
        "metrics_port",
        "mode",
        "name",
        "namespace",
        "node_name",
        "overlap",
        "pod_logs_dir",
        "port",
        "ports_file",
        "programming",
        "root",
        "scan_interval",
        "sensor_interval",
        "service",
        "settle",
        "state_dir",
        "tls_cert",
        "tls_key",
        "tls_secret",
        "units",
        "webhook_config",
    }
)
"""The fields that some process of accelbind reads from the environment (a test compares)."""

_SERVICE_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)
_SERVICE_LINK_NAME = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_MAX_FILE = 64 * 1024


def _split_commas(value: object) -> object:
    """Flags and variables spell a list as `a,b`; a file may also hold a list."""
    if isinstance(value, str):
        return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)
    return value


CommaSeparated = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]


class Settings(BaseModel):
    """Base of every process's settings; fill it with `load`, not from thin air.

    It reads neither environment nor files itself: `load` does, to know who said what.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def _with_origins(self, origins: Mapping[str, str]) -> Self:
        self._origins = dict(origins)
        return self


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]


class ProcessSettings(Settings):
    """What every long-running process of accelbind has."""

    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9101
    ports_file: Path | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"


S = TypeVar("S", bound=Settings)


def load(
    model: type[S],
    flags: Mapping[str, object],
    config: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> S:
    """Fills a settings model.

    Args:
        model: The process's model.
        flags: Values given on the command line, by field; leave out (or None) what wasn't given.
        config: The settings file (YAML, one key a field), if any.
        environ: The environment variables.

    Raises:
        InvalidSettings: In one line, with who said it: an unknown key, a value that doesn't fit.
        WorldError: The settings file isn't there, or can't be read.
    """
    layers = (
        (_from_flags(flags), lambda name: f"--{_dashed(name)}"),
        (_from_environment(model, environ), lambda name: PREFIX + name.upper()),
        (_from_file(model, config), lambda _name: str(config)),
    )
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for layer, origin in layers:
        for name, value in layer.items():
            if name not in values:
                values[name] = value
                origins[name] = origin(name)
    try:
        return model(**values)._with_origins(origins)  # noqa: SLF001 - its own module
    except ValidationError as error:
        raise InvalidSettings(_sentence(error, values, origins)) from error


def render(settings: Settings) -> str:
    """The settings as YAML that `--config` reads again, each with where its value is from."""
    dumped = settings.model_dump(mode="json")
    rows = [(f"{_dashed(name)}: {_scalar(value)}", name) for name, value in dumped.items()]
    width = max((len(text) for text, _ in rows), default=0)
    origins = settings._origins  # noqa: SLF001 - its own module
    return "".join(
        f"{text.ljust(width)}  # {origins.get(name, 'default')}\n" for text, name in rows
    )


def _scalar(value: object) -> str:
    flow = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return flow.removesuffix("\n").removesuffix("\n...")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in flags.items() if value is not None}


def _from_flags(flags: Mapping[str, object]) -> dict[str, object]:
    """Flags that may be given several times come as lists, of which each may be one with commas."""
    return {
        name: ",".join(value) if isinstance(value, list | tuple) else value
        for name, value in _given(flags).items()
    }


def _nearest(name: str, known: Mapping[str, object] | frozenset[str] | set[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def _is_service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK_VALUE.match(value) or _SERVICE_LINK_NAME.search(name))


def _from_environment(model: type[Settings], environ: Mapping[str, str]) -> dict[str, Any]:
    ours = {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX) and not _is_service_link(name, value)
    }
    known = ENVIRONMENT | set(model.model_fields)
    for variable in sorted(ours):
        field = variable.removeprefix(PREFIX).lower()
        if field not in known:
            near = _nearest(field, known)
            hint = f"; did you mean {PREFIX}{near.upper()}?" if near else ""
            raise InvalidSettings(f"the environment variable {variable} is no setting{hint}")
    given = {name.removeprefix(PREFIX).lower(): value for name, value in ours.items() if value}
    return {name: value for name, value in given.items() if name in model.model_fields}


def _from_file(model: type[Settings], config: Path | None) -> dict[str, object]:
    if config is None:
        return {}
    values: dict[str, object] = {}
    for key, value in _read_mapping(config).items():
        name = key.replace("-", "_")
        if name not in model.model_fields:
            near = _nearest(name, set(model.model_fields))
            hint = f"; did you mean {_dashed(near)}?" if near else ""
            raise InvalidSettings(f"{config}: {key} is no setting{hint}")
        if name in values:
            raise InvalidSettings(f"{config}: {key} is set twice")
        values[name] = value
    return _given(values)


def _read_mapping(config: Path) -> dict[str, object]:
    try:
        with config.open("rb") as file:
            text = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise WorldError(f"{config}: {error.strerror}") from error
    if len(text) > _MAX_FILE:
        raise InvalidSettings(f"{config}: more than {_MAX_FILE // 1024} KiB is no settings file")
    documents = list(read_documents(text))
    if not documents:
        return {}
    first, *more = documents
    if isinstance(first, BrokenDocument):
        raise InvalidSettings(f"{config}, line {first.line}: {first.message}")
    if more or not isinstance(first.value, dict):
        raise InvalidSettings(f"{config}: a settings file is one mapping of settings to values")
    return first.value


_TIME: Final = re.compile(r"datetime\.timedelta\(([^()]*)\)")
_PART: Final = re.compile(r"(\w+)=(\d+)")


def _sentence(
    error: ValidationError, values: Mapping[str, object], origins: Mapping[str, str]
) -> str:
    parts = []
    for issue in error.errors(include_url=False, include_context=False):
        location = [str(step) for step in issue["loc"]]
        if not location:
            parts.append(issue["msg"].removeprefix("Value error, "))
            continue
        name = location[0]
        where = origins.get(name, f"--{_dashed(name)}")
        reason = issue["msg"].removeprefix("Value error, ")
        reason = reason[:1].lower() + reason[1:]
        reason = _TIME.sub(lambda found: _PART.sub(r"\2 \1", found[1]), reason)
        if issue["type"] == "missing":
            parts.append(f"{where} is required")
        elif issue["type"] == "extra_forbidden":
            parts.append(f"{where} is no setting")
        else:
            label = where if name in where.replace("-", "_").lower() else f"{where}: {name}"
            parts.append(f"{label}: {reason} (it is {values.get(name)!r:.80})")
    return "; ".join(parts)
