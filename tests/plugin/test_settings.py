import socket
from dataclasses import fields
from pathlib import Path

import pytest

from plugin.options import PluginOptions
from plugin.settings import PluginSettings
from services.devices.model import PluginMode
from services.process.errors import InvalidSettings
from services.process.settings import ENVIRONMENT, load


def test_what_is_not_set_is_as_the_flags_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    settings = load(PluginSettings, {}, environ={})
    assert settings.mode is PluginMode.AF
    assert (settings.root, settings.options().host_root) == (Path("/"), Path("/"))
    assert settings.kubelet_dir == Path("/var/lib/kubelet")
    assert settings.pod_logs_dir == Path("/var/log/pods")
    assert settings.node_name == socket.gethostname()
    assert (settings.units, settings.scan_interval, settings.metrics_port) == (40, 5.0, 9102)
    assert settings.kubeconfig is None


def test_a_daemon_set_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "n7")
    assert load(PluginSettings, {}, environ={}).node_name == "n7"
    assert load(PluginSettings, {"node_name": "n8"}, environ={}).node_name == "n8"


def test_flags_come_before_the_environment_before_a_file(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("mode: region\nunits: 7\nscan-interval: 2\n")
    environ = {"ACCELBIND_UNITS": "8", "ACCELBIND_MODE": "units"}
    settings = load(PluginSettings, {"mode": "bdf"}, config, environ=environ)
    assert (settings.mode, settings.units, settings.scan_interval) == (PluginMode.BDF, 8, 2.0)


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(PluginSettings, {"root": "r", "kubelet_dir": "k"}, environ={})
    assert settings.root == tmp_path / "r"
    assert settings.kubelet_dir == tmp_path / "k"
    assert settings.options().host_root == tmp_path / "r"
    settings = load(PluginSettings, {"root": "r", "host_root": "/"}, environ={})
    assert settings.options().host_root == Path("/")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"mode": "fpga"}, "--mode: input should be 'af', 'region'"),
        ({"units": 0}, "--units"),
        ({"units": "many"}, "--units"),
        ({"scan_interval": 0}, "--scan-interval"),
        ({"healthy_after": 0}, "--healthy-after"),
        ({"cdi": True}, "--cdi names devices that a file in --cdi-dir describes"),
        ({"metrics_port": 65536}, "--metrics-port"),
        ({"node_name": ""}, "--node-name"),
        ({"log_level": "loud"}, "--log-level"),
        ({"colour": "red"}, "--colour is no setting"),
    ],
)
def test_what_does_not_fit_is_named_with_who_said_it(flags: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidSettings, match=text):
        load(PluginSettings, flags, environ={})


def test_every_setting_may_come_from_the_environment() -> None:
    assert set(PluginSettings.model_fields) <= ENVIRONMENT


def test_the_options_are_the_settings_and_nothing_else() -> None:
    settings = PluginSettings(units=7, host_root=Path("/h"))
    assert {each.name for each in fields(PluginOptions)} == set(PluginSettings.model_fields)
    assert settings.options() == PluginOptions(**dict(settings))
