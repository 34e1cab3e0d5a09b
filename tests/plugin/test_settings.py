import socket
from pathlib import Path

import pytest

from plugin.settings import PluginSettings
from services.devices.model import PluginMode
from services.process.errors import InvalidSettings
from services.process.settings import load


def test_the_node_is_named_by_its_daemon_set_or_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert load(PluginSettings, {}).node_name == socket.gethostname()
    monkeypatch.setenv("NODE_NAME", "n7")
    assert load(PluginSettings, {}).node_name == "n7"
    assert load(PluginSettings, {"node_name": "n8"}).node_name == "n8"


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(PluginSettings, {"root": "r", "kubelet_dir": "k"})
    assert settings.root == tmp_path / "r"
    assert settings.kubelet_dir == tmp_path / "k"
    assert settings.host_root == tmp_path / "r"
    assert load(PluginSettings, {"root": "r", "host_root": "/"}).host_root == Path("/")


@pytest.mark.parametrize(
    ("flags", "mode", "idle"),
    [
        ({"api": "dra"}, PluginMode.REGION, []),
        ({"api": "dra", "mode": "none"}, PluginMode.NONE, []),
        (
            {"api": "dra", "mode": "af", "units": "3", "cdi": True},
            PluginMode.REGION,
            ["--cdi", "--mode", "--units"],
        ),
        ({"mode": "units", "units": "3"}, PluginMode.REGION, []),
    ],
)
def test_both_apis_take_the_same_flags(
    flags: dict[str, object], mode: PluginMode, idle: list[str]
) -> None:
    domain = "my-k8s.io"  # which only looks like one of Kubernetes
    settings = load(PluginSettings, flags | {"resource_domain": domain})
    assert (settings.dra_mode, settings.idle_flags) == (mode, idle)
    assert settings.resource_domain == (domain,)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"mode": "fpga"}, "--mode: must be 'af', 'region'"),
        ({"scan_interval": "0"}, "--scan-interval: must be at least 50ms"),
        ({"cdi": True}, "--cdi names devices that a file in --cdi-dir describes"),
        ({"programming": "oci-hook"}, "--programming=oci-hook announces the hook"),
        ({"api": "dra", "programming": "oci-hook"}, "--programming oci-hook is not for --api dra"),
        ({"programming": "on-prepare"}, "it must be prestart, oci-hook or none"),
        ({"ignore_errors": "bad-errors"}, "--ignore-errors"),
        ({"node_name": ""}, "--node-name"),
        *(
            ({"resource_domain": each}, "--resource-domain: .*can't be a domain of device types")
            for each in ("fpga.intel.com", "my-kubernetes.io", "k8s.io", "requests.a.com", "a")
        ),
        ({"resource_domain": f"{'a' * 241}.com"}, "--resource-domain"),
    ],
)
def test_contradicting_settings_are_named_with_their_sources(
    flags: dict[str, object], text: str
) -> None:
    with pytest.raises(InvalidSettings, match=text):
        load(PluginSettings, flags)
