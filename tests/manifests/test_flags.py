"""What the manifests tell the processes is what these understand, and where they listen.

Each container's command is run here with its arguments and variables and `--print-config`: an
unknown flag or variable, or a value that can't be, ends it.
"""

from pathlib import PurePath

import pytest
import yaml

from services.devices.dra import DRIVER
from tests.accelbind.running import run
from tests.manifests.rendering import OVERLAYS, Json, one, ours, rendered

MODES = {
    "region": "region",
    "region-hook": "region",
    "regiondevel": "regiondevel",
    "aws": "units",
    "bcom": "bdf",
}


PLUGINS = sorted(set(OVERLAYS) - {"names"})
"""The overlays that have one."""
DRA_FOLDERS = ("device-plugins", f"plugins/{DRIVER}", "plugins_registry")
ENFORCING = {"region", "regiondevel"}
"""Modes whose plugins must know every pod that starts a container."""


def settings(container: Json) -> Json:
    """The settings of a container's process."""
    assert container["command"] == ["accelbind"], "the images' entry point"
    env = {each["name"]: each.get("value", "node-1") for each in container.get("env", ())}
    done = run(*container["args"], "--print-config", env=env)
    assert done.returncode == 0, done.stderr
    found: Json = yaml.safe_load(done.stdout)
    return found


def container_of(overlay: str, name: str) -> Json:
    (found,) = ours(f"overlays/{overlay}")[name]["containers"]
    own: Json = found
    return own


def ports(container: Json) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def beneath(path: str, container: Json) -> bool:
    return any(
        PurePath(path).is_relative_to(mount["mountPath"]) for mount in container["volumeMounts"]
    )


@pytest.mark.parametrize("overlay", PLUGINS)
def test_the_plugin_understands_its_settings_and_has_what_they_name(overlay: str) -> None:
    container = container_of(overlay, "accelbind-plugin")
    found, is_dra = settings(container), overlay == "dra"
    assert found["node-name"] == "node-1", "the node's name, and not the pod's"
    assert found["host-root"] == "/"
    assert ports(container) == {"metrics": found["metrics-port"]}
    for folder in ("sys", "dev"):
        assert beneath(f"{found['root']}/{folder}", container)
    for folder in DRA_FOLDERS if is_dra else ("device-plugins", "pod-resources"):
        assert beneath(f"{found['kubelet-dir']}/{folder}", container)
    assert beneath(found["state-dir"], container)
    assert found["cdi-dir"] is None or beneath(found["cdi-dir"], container)
    (sys,) = [mount for mount in container["volumeMounts"] if mount["name"] == "sys"]
    assert found["clear-errors"] is not sys.get("readOnly", False)
    if is_dra:
        assert container["args"] == ["plugin", "--api=dra"]
        assert (found["programming"], found["cdi-dir"] is None) == ("on-prepare", False)
    else:
        assert found["mode"] == MODES.get(overlay, "af")
        assert found["programming"] == ("oci-hook" if overlay == "region-hook" else "prestart")
    assert beneath(found["pod-logs-dir"], container) == (is_dra or found["mode"] in ENFORCING)
    assert beneath(found["bitstreams"], container) == (is_dra or found["mode"] == "region")


def test_the_webhook_understands_its_settings_and_listens_where_the_service_leads() -> None:
    container = container_of("af", "accelbind-webhook")
    found = settings(container)
    assert ports(container) == {"https": found["port"], "metrics": found["metrics-port"]}
    assert found["mappings"] is None
    assert found["max-staleness"] == "10m"
    assert beneath(found["tls-cert"], container)
    assert beneath(found["tls-key"], container)
    service = one(rendered("base"), "Service", "accelbind-webhook")["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in service] == [(443, "https")]


def test_the_certificates_are_for_what_the_manifests_name() -> None:
    items = rendered("base")
    container = container_of("af", "accelbind-certs")
    found = settings(container)
    assert ports(container) == {"metrics": found["metrics-port"]}
    assert found["namespace"] == "accelbind-system"
    allowed = one(items, "Role", "accelbind-certs")["rules"][0]["resourceNames"]
    assert allowed == [found["ca-secret"], found["tls-secret"]]
    one(items, "Service", found["service"])
    for name in found["webhook-config"]:
        one(items, "MutatingWebhookConfiguration", name)
        one(items, "ValidatingWebhookConfiguration", name)


def test_the_hook_is_where_the_plugin_tells_the_runtime_to_find_it() -> None:
    spec = ours("overlays/region-hook")["accelbind-plugin"]
    (installer,) = spec["initContainers"]
    (mount,) = installer["volumeMounts"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    target = PurePath(installer["args"][-1]).relative_to(mount["mountPath"])
    found = settings(container_of("region-hook", "accelbind-plugin"))
    assert (
        str(PurePath(volume["hostPath"]["path"]) / target / "accelbind-hook") == found["hook-path"]
    )
