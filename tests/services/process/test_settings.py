import os
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, field_validator

from services.process.errors import InvalidSettings
from services.process.settings import (
    TIME,
    CommaSeparated,
    Flag,
    Port,
    ProcessSettings,
    Seconds,
    Settings,
    duration,
    duration_text,
    load,
    render,
)


class Sample(ProcessSettings):
    host: str = "0.0.0.0"  # noqa: S104 - data
    port: Port = 8443
    tls_cert: Path
    domain: CommaSeparated = ("fpga.intel.com",)
    mode: Literal["af", "region"] = "af"
    node_name: str | None = None
    quiet: bool = False
    interval: Annotated[Seconds, Field(ge=0.05), Flag(TIME)] = 5.0
    """Time between two rounds."""

    @field_validator("node_name")
    @classmethod
    def _no_blanks(cls, value: str | None) -> str | None:
        if value is not None and " " in value:
            raise ValueError("a node's name has no blanks")
        return value


CERT: dict[str, object] = {"tls_cert": "/c.pem"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("ACCELBIND_")]:
        monkeypatch.delenv(name)


def of(**flags: object) -> Sample:
    return load(Sample, CERT | flags)


def refusal(flags: dict[str, object]) -> str:
    with pytest.raises(InvalidSettings) as caught:
        load(Sample, flags)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_given_flag_beats_the_variable_and_that_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELBIND_PORT", "2")
    monkeypatch.setenv("ACCELBIND_HOST", "environment")
    monkeypatch.setenv("ACCELBIND_DOMAIN", "a, b,")
    settings = of(port=3, host=None, domain=[])
    assert (settings.port, settings.host, settings.quiet) == (3, "environment", False)
    assert settings.domain == ("a", "b")
    assert of(domain=["a,b", "c"]).domain == ("a", "b", "c"), "a flag may be repeated"


@pytest.mark.parametrize(
    ("text", "seconds"), [("45 s", 45), ("0.5", 0.5), ("1.5h", 5400), ("250ms", 0.25)]
)
def test_times_have_a_unit_or_count_seconds(text: str, seconds: float) -> None:
    found = duration(text)
    assert found == seconds
    assert duration(duration_text(found)) == found
    if seconds >= 2:
        assert of(interval=text).interval == seconds


@pytest.mark.parametrize("text", ["", "-1", "1d2h", "9" * 30 + "d", "1e3"])
def test_other_texts_than_times_are_refused(text: str) -> None:
    assert refusal(CERT | {"interval": text}).startswith("--interval: a time is a number with ms,")


@pytest.mark.parametrize(
    ("flags", "variables", "wanted"),
    [
        (CERT | {"port": "70000"}, {}, "--port: must be at most 65535"),
        (CERT | {"interval": "1ms"}, {}, "--interval: must be at least 50ms"),
        (CERT, {"ACCELBIND_PORT": "much"}, "ACCELBIND_PORT: must be a valid integer"),
        (CERT, {"ACCELBIND_MODE": "x"}, "ACCELBIND_MODE: must be 'af' or 'region' (it is 'x')"),
        ({}, {}, "--tls-cert is required"),
        (CERT | {"node_name": "a b"}, {}, "--node-name: a node's name has no blanks"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_who_gave_it(
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, object],
    variables: dict[str, str],
    wanted: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert refusal(flags).startswith(wanted)


def test_several_wrong_values_are_told_at_once_and_long_ones_cut() -> None:
    text = refusal({"port": "9" * 5000})
    assert len(text) < 400
    assert "--port" in text
    assert "--tls-cert is required" in text


def test_a_default_that_follows_from_another_setting_is_no_further_error() -> None:
    class Following(Settings):
        low: int = 1
        high: int = Field(default_factory=lambda data: data["low"] + 1)

    assert load(Following, {"low": 3}).high == 4
    with pytest.raises(InvalidSettings, match=r"^--low: [^;]*$"):
        load(Following, {"low": "x"})


def test_a_misspelt_variable_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELBIND_METRIC_PORT", "1")
    assert refusal(CERT) == (
        "the environment variable ACCELBIND_METRIC_PORT is not a setting;"
        " did you mean ACCELBIND_METRICS_PORT?"
    )
    settings = load(Sample, CERT, others=lambda: {"metric_port"})
    assert settings.port == 8443, "another process has it"


def test_rendered_settings_tell_where_each_value_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELBIND_HOST", "::")
    flags = CERT | {"port": "3", "interval": "0.5", "quiet": None}
    text = render(load(Sample, flags), flags)
    rows = {line.split(":")[0]: line for line in text.splitlines()}
    assert re.fullmatch(r"port: 3 +# --port", rows["port"])
    assert re.fullmatch(r"host: '::' +# ACCELBIND_HOST", rows["host"])
    assert re.fullmatch(r"quiet: false +# default", rows["quiet"])
    assert re.fullmatch(r"interval: 500ms +# --interval", rows["interval"])
    assert re.fullmatch(r"domain: \[fpga.intel.com\] +# default", rows["domain"])
