"""The settings of `accelbind certs run`."""

from pathlib import Path

import pytest

from certs.settings import CertsSettings, own_namespace
from services.process.errors import InvalidSettings
from services.process.settings import load


def settings(**flags: object) -> CertsSettings:
    return load(CertsSettings, flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"ca_secret": "x", "tls_secret": "x"}, "must differ"),
        ({"lifetime": "90d", "ca_lifetime": "30d"}, "shorter than --lifetime"),
        ({"lifetime": "1m", "interval": "11s"}, "a sixth of --lifetime"),
        ({"lifetime": "1s"}, "must be at least 2s "),
        ({"interval": "2h"}, "must be at most 1h "),
        ({"namespace": "../x"}, "neither a DNS name"),
        ({"webhook_config": ()}, "at least 1 item"),
        ({"name": "a b"}, "neither a DNS name"),
        ({"lifetime": "999999999d"}, "--lifetime"),
        ({"lifetime": "90d", "overlap": "60d"}, "--overlap must be less than two thirds"),
    ],
)
def test_what_does_not_fit_is_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        settings(**flags)


def test_the_names_of_the_service_are_in_the_certificate() -> None:
    found = settings(namespace="a", service="b", name="c.d").policy.names
    assert [str(name.value) for name in found] == ["b.a.svc", "b.a", "b", "c.d"]


def test_the_namespace_is_the_pod_s_own(tmp_path: Path) -> None:
    assert own_namespace(str(tmp_path)) == "accelbind-system"
    (tmp_path / "namespace").write_text("mine\n")
    assert own_namespace(str(tmp_path)) == "mine"
