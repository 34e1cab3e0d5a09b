"""What `accelbind certs run` can be told."""

from datetime import timedelta
from pathlib import Path

import pytest

from certs.settings import CertsSettings, duration, duration_text, own_namespace
from services.process.errors import InvalidSettings
from services.process.settings import load, render


def settings(**flags: object) -> CertsSettings:
    return load(CertsSettings, flags, environ={})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90d", 7_776_000), ("12h", 43_200), ("5m", 300), ("45s", 45), ("45", 45), ("250ms", 0.25)],
)
def test_times_are_read_and_written(text: str, seconds: float) -> None:
    found = duration(text)
    assert found == timedelta(seconds=seconds)
    assert isinstance(found, timedelta)
    assert duration(duration_text(found)) == found


@pytest.mark.parametrize("text", ["", "d", "-1d", "1.5h", "1y", "1d2h", "9" * 30 + "d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match="--lifetime: a time is a number"):
        settings(lifetime=text)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"ca_secret": "x", "tls_secret": "x"}, "must differ"),
        ({"lifetime": "90d", "ca_lifetime": "30d"}, "shorter than --lifetime"),
        ({"lifetime": "1m", "interval": "11s"}, "a sixth of --lifetime"),
        ({"lifetime": "1s"}, "greater than or equal to 2 seconds "),
        ({"interval": "2h"}, "less than or equal to 3600 seconds "),
        ({"namespace": "../x"}, "not the name of a namespace"),
        ({"tls_secret": "a/b"}, "not the name of an object"),
        ({"webhook_config": "a,b/c"}, "not the name of an object"),
        ({"webhook_config": ()}, "at least one name"),
        ({"name": "a b"}, "neither a DNS name"),
        ({"lifetime": "999999999d"}, "--lifetime"),
        ({"lifetime": "90d", "overlap": "60d"}, "--overlap must be less than two thirds"),
    ],
)
def test_what_does_not_fit_is_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        settings(**flags)


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    found = settings(lifetime="36h", interval="500ms", webhook_config="a,b", overlap="0s")
    file = tmp_path / "certs.yaml"
    file.write_text(render(found))
    again = load(CertsSettings, {}, file, environ={})
    assert again.model_dump() == found.model_dump()
    assert again.locations.configurations == ("a", "b")


def test_the_overlap_may_be_just_under_two_thirds_of_the_lifetime() -> None:
    assert settings(lifetime="90d", overlap="1439h").overlap == timedelta(hours=1439)


def test_the_names_of_the_service_are_in_the_certificate() -> None:
    found = settings(namespace="a", service="b", name="c.d").policy.names
    assert [str(name.value) for name in found] == ["b.a.svc", "b.a", "b", "c.d"]


def test_the_namespace_is_the_pod_s_own(tmp_path: Path) -> None:
    assert own_namespace(str(tmp_path)) == "accelbind-system"
    (tmp_path / "namespace").write_text("mine\n")
    assert own_namespace(str(tmp_path)) == "mine"
    (tmp_path / "namespace").write_bytes(b"\xff")
    assert own_namespace(str(tmp_path)) == "accelbind-system"
