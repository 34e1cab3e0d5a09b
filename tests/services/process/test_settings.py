import os
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, field_validator, model_validator

from services.process.errors import InvalidSettings, WorldError
from services.process.settings import CommaSeparated, ProcessSettings, Settings, load, render


class Sample(ProcessSettings):
    host: str = "0.0.0.0"  # noqa: S104 - data
    port: Annotated[int, Field(ge=0, le=65535)] = 8443
    tls_cert: Path
    domain: CommaSeparated = ("fpga.intel.com",)
    mode: Literal["af", "region"] = "af"
    node_name: str | None = None
    quiet: bool = False
    interval: float = 5.0

    @field_validator("node_name")
    @classmethod
    def _no_blanks(cls, value: str | None) -> str | None:
        if value is not None and " " in value:
            raise ValueError("a node's name has no blanks")
        return value


CERT = {"tls_cert": "/c.pem"}


def of(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
) -> Sample:
    return load(Sample, CERT if flags is None else flags, config, environ=environ or {})


def refusal(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    config: Path | None = None,
) -> str:
    with pytest.raises(InvalidSettings) as caught:
        of(flags, environ, config)
    text = str(caught.value)
    assert "\n" not in text
    return text


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "settings.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_flag_beats_the_environment_and_that_the_file_and_that_the_default(
    tmp_path: Path,
) -> None:
    config = written(tmp_path, "port: 1\nhost: file\nmode: region\n")
    environ = {"ACCELBIND_PORT": "2", "ACCELBIND_HOST": "environment"}
    settings = of({**CERT, "port": 3}, environ, config)
    assert (settings.port, settings.host, settings.mode, settings.quiet) == (
        3,
        "environment",
        "region",
        False,
    )


def test_a_flag_that_was_not_given_hides_nothing() -> None:
    assert of({**CERT, "port": None}, {"ACCELBIND_PORT": "2"}).port == 2


def test_a_model_made_directly_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELBIND_PORT", "2")
    assert Sample(tls_cert=Path("/c.pem")).port == 8443


def test_the_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("ACCELBIND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACCELBIND_PORT", "2")
    assert load(Sample, CERT).port == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("a.example", ("a.example",)), ("a.example, b.example,", ("a.example", "b.example"))],
)
def test_lists_are_spelt_with_commas(text: str, wanted: tuple[str, ...]) -> None:
    assert of(environ={"ACCELBIND_DOMAIN": text}).domain == wanted
    assert of({**CERT, "domain": text}).domain == wanted
    assert of({**CERT, "domain": [text]}).domain == wanted


def test_a_file_may_spell_a_list_either_way(tmp_path: Path) -> None:
    assert of({**CERT, "domain": ["a,b", "c"]}).domain == ("a", "b", "c")
    assert of(config=written(tmp_path, "domain: [a, b]\n")).domain == ("a", "b")
    assert of(config=written(tmp_path, "domain:\n- a\n- b\n")).domain == ("a", "b")
    assert of(config=written(tmp_path, "domain: a,b\n")).domain == ("a", "b")


def test_a_file_takes_dashes_as_well_as_underscores(tmp_path: Path) -> None:
    assert of(config=written(tmp_path, "metrics-port: 7\n")).metrics_port == 7
    assert of(config=written(tmp_path, "metrics_port: 8\n")).metrics_port == 8


def test_a_file_means_the_same_text_as_the_environment(tmp_path: Path) -> None:
    config = written(tmp_path, "node_name: 0123\nquiet: true\ninterval: 0.5\nport: 0\n")
    settings = of(config=config)
    assert (settings.node_name, settings.quiet, settings.interval) == ("0123", True, 0.5)


@pytest.mark.parametrize("nothing", ["", "~", "null"])
def test_null_in_a_file_and_an_empty_variable_are_not_given(tmp_path: Path, nothing: str) -> None:
    assert of(config=written(tmp_path, f"port: {nothing}\n")).port == 8443
    assert of(environ={"ACCELBIND_PORT": ""}).port == 8443


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "{}\n"])
def test_an_empty_file_changes_nothing(tmp_path: Path, content: str) -> None:
    assert of(config=written(tmp_path, content)).port == 8443


def test_an_unknown_key_in_the_file_is_named_with_the_nearest(tmp_path: Path) -> None:
    config = written(tmp_path, "metrics-prt: 7\n")
    assert refusal(config=config) == (
        f"{config}: metrics-prt is no setting; did you mean metrics-port?"
    )
    assert refusal(config=written(tmp_path, "zzzzzzzz: 7\n")) == f"{config}: zzzzzzzz is no setting"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("port: 1\nport: 2\n", "'port' is set twice"),
        ("metrics-port: 1\nmetrics_port: 2\n", "metrics_port is set twice"),
        ("- a\n", "a settings file is one mapping of settings to values"),
        ("just text\n", "a settings file is one mapping of settings to values"),
        ("port: 1\n---\nport: 2\n", "a settings file is one mapping of settings to values"),
        ("port: [1\n", "did not find expected"),
        ("domain: &x [*x]\n", "*x: write out what this alias stands for"),
        (b"port: \xff\n", "invalid"),
        ("[" * 30_000, "levels deep"),
        ("- " * 30_000 + "a", "levels deep"),
        ("#" * 70_000, "more than 64 KiB"),
        ("? [a]\n: 1\n", "a key has to be a text"),
    ],
)
def test_a_file_that_is_no_settings_file_is_refused_in_one_line(
    tmp_path: Path, content: str | bytes, wanted: str
) -> None:
    config = written(tmp_path, content)
    text = refusal(config=config)
    assert text.startswith(f"{config}")
    assert wanted in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(WorldError) as caught:
        of(config=missing)
    assert str(caught.value) == f"{missing}: No such file or directory"


@pytest.mark.parametrize(
    ("flags", "environ", "wanted"),
    [
        ({**CERT, "port": "70000"}, {}, "--port: input should be less than or equal to 65535"),
        (CERT, {"ACCELBIND_PORT": "much"}, "ACCELBIND_PORT: input should be a valid integer"),
        ({}, {}, "--tls-cert is required"),
        ({**CERT, "node_name": "a b"}, {}, "--node-name: a node's name has no blanks"),
        ({**CERT, "bogus": 1}, {}, "--bogus is no setting"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_who_gave_it(
    flags: dict[str, object], environ: dict[str, str], wanted: str
) -> None:
    assert refusal(flags, environ).startswith(wanted)


def test_the_value_that_does_not_fit_is_shown_and_cut_where_it_is_long() -> None:
    assert refusal({**CERT, "port": "much"}).endswith("(it is 'much')")
    assert len(refusal({**CERT, "port": "9" * 5000})) < 400


def test_a_value_in_the_file_that_does_not_fit_names_file_and_key(tmp_path: Path) -> None:
    config = written(tmp_path, "port: much\n")
    assert refusal(config=config).startswith(f"{config}: port: input should be a valid integer")


def test_several_wrong_values_are_told_at_once() -> None:
    text = refusal({}, {"ACCELBIND_PORT": "much"})
    assert "ACCELBIND_PORT" in text
    assert "--tls-cert is required" in text


def test_a_rule_across_settings_is_told_plainly() -> None:
    class Pair(Settings):
        low: int = 1
        high: int = 2

        @model_validator(mode="after")
        def _ordered(self) -> "Pair":
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    with pytest.raises(InvalidSettings, match=r"^low is above high$"):
        load(Pair, {"low": 3}, environ={})


def test_a_misspelt_variable_is_refused_with_the_nearest() -> None:
    assert refusal(environ={"ACCELBIND_METRIC_PORT": "1"}) == (
        "the environment variable ACCELBIND_METRIC_PORT is no setting;"
        " did you mean ACCELBIND_METRICS_PORT?"
    )


def test_a_variable_of_another_process_is_nobody_s_error() -> None:
    assert of(environ={"ACCELBIND_SCAN_INTERVAL": "5"}).port == 8443


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCELBIND_PORT", "tcp://10.0.0.1:443"),
        ("ACCELBIND_METRICS_PORT", "tcp://10.0.0.1:9101"),
        ("ACCELBIND_WEBHOOK_PORT", "udp://10.0.0.1:443"),
        ("ACCELBIND_SERVICE_HOST", "10.0.0.1"),
        ("ACCELBIND_WEBHOOK_SERVICE_HOST", "10.0.0.1"),
        ("ACCELBIND_WEBHOOK_SERVICE_PORT", "443"),
        ("ACCELBIND_WEBHOOK_SERVICE_PORT_HTTPS", "443"),
        ("ACCELBIND_PORT_443_TCP", "tcp://10.0.0.1:443"),
        ("ACCELBIND_PORT_443_TCP_PROTO", "tcp"),
        ("ACCELBIND_PORT_443_TCP_PORT", "443"),
        ("ACCELBIND_PORT_443_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_what_kubernetes_injects_for_a_service_is_no_setting(name: str, value: str) -> None:
    settings = of(environ={name: value})
    assert (settings.port, settings.metrics_port) == (8443, 9101)


def test_rendered_settings_tell_where_each_value_is_from(tmp_path: Path) -> None:
    config = written(tmp_path, "mode: region\n")
    text = render(of({**CERT, "port": 3}, {"ACCELBIND_HOST": "::"}, config))
    rows = {line.split(":")[0]: line for line in text.splitlines()}
    assert re.fullmatch(r"port: 3 +# --port", rows["port"])
    assert re.fullmatch(r"host: '::' +# ACCELBIND_HOST", rows["host"])
    assert re.fullmatch(rf"mode: region +# {re.escape(str(config))}", rows["mode"])
    assert re.fullmatch(r"quiet: false +# default", rows["quiet"])


def test_rendered_settings_are_a_settings_file(tmp_path: Path) -> None:
    settings = of({**CERT, "node_name": "0123", "domain": "a,b"})
    again = load(Sample, {}, written(tmp_path, render(settings)), environ={})
    assert again.model_dump() == settings.model_dump()
