"""The settings of `accelbind certs run`."""

from pathlib import Path

import pytest

from certs.settings import CertsSettings
from services.kube.access import own_namespace
from services.process.errors import InvalidSettings
from services.process.settings import load


def settings(**flags: object) -> CertsSettings:
    return load(CertsSettings, flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"ca_secret": "x", "tls_secret": "x"}, "must differ"),
        ({"interval": "2h"}, "must be at most 1h "),
        ({"namespace": "../x"}, "neither a DNS name"),
        ({"webhook_config": ()}, "at least 1 item"),
        ({"name": "a b"}, "neither a DNS name"),
        ({"settle": "25h"}, "must be at most 1d"),
    ],
)
def test_unfit_settings_are_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        settings(**flags)


def test_the_names_of_the_service_are_in_the_certificate() -> None:
    found = settings(namespace="a", service="b", name="c.d").names
    assert found == ("b.a.svc", "b.a", "b", "c.d")


def test_the_namespace_is_the_pod_s_own(tmp_path: Path) -> None:
    assert (own_namespace(tmp_path), settings().namespace) == ("", "accelbind-system")
    (tmp_path / "namespace").write_text("mine\n")
    assert own_namespace(tmp_path) == "mine"
