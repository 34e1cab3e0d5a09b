"""Generated pages are up to date and complete. tests/golden compares the names in the reference."""

import ast
import re

import pytest

from tests.manifests.test_monitoring import scraped
from tests.services.kube.kubeconfigs import write_config
from tests.support import REPOSITORY, Processes, eventually
from tests.webhook.running import start_webhook
from tools.docs import codes, metrics
from tools.docs.__main__ import PAGES


@pytest.mark.parametrize("path", list(PAGES))
def test_generated_pages_are_up_to_date(path: str) -> None:
    assert (REPOSITORY / path).read_text() == PAGES[path](), "make docs"


def test_the_metrics_are_those_that_the_processes_show(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("m")
    (folder / "root" / "sys").mkdir(parents=True)
    (folder / "k" / "device-plugins").mkdir(parents=True)
    processes, found = Processes(folder), {}
    webhook = start_webhook(folder, mappings={})
    try:
        plugin = processes.accelbind(
            *("plugin", "--root", folder / "root", "--kubelet-dir", folder / "k"),
            *("--metrics-port", "0", "--ports-file", folder / "plugin.json"),
        )
        kubeconfig = write_config(folder, {"server": "http://127.0.0.1:1"})
        dra = processes.accelbind(
            *("dra", "--root", folder / "root", "--kubelet-dir", folder / "k2"),
            *("--kubeconfig", kubeconfig, "--state-dir", folder / "state"),
            *("--metrics-port", "0", "--ports-file", folder / "dra.json"),
        )
        certs = processes.accelbind(
            *("certs", "run", "--kubeconfig", kubeconfig),
            *("--metrics-port", "0", "--ports-file", folder / "certs.json"),
        )
        found["webhook"] = scraped(webhook.metrics_port)
        port = plugin.ports(folder / "plugin.json")["metrics"]
        # Cards are composed after the ports are known, once the node's lock is held.
        eventually(lambda: "accelbind_card_info" in scraped(port))
        found["plugin"] = scraped(port)
        found["dra"] = scraped(dra.ports(folder / "dra.json")["metrics"])
        found["certs run"] = scraped(certs.ports(folder / "certs.json")["metrics"])
    finally:
        webhook.process.kill()
        assert list(processes.close()) == []
    for process, registry in metrics.PROCESSES.items():
        families = {
            name: kind for name, kind in found[process].items() if not name.endswith("_created")
        }
        assert {each.name: each.kind for each in metrics.shown(registry())} == families


def test_names_in_objects_of_others_are_documented() -> None:
    """Annotations and variables, as the code of the processes has them."""
    ours = re.compile(r"(accelbind\.dev/[a-z-]+|ACCELERATOR_[A-Z]+)")
    told = codes.names()
    found = {
        node.value
        for room in ("webhook", "plugin", "dra", "certs", "services")
        for path in (REPOSITORY / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ours.fullmatch(node.value)
    }
    assert len(found) >= 4
    assert [name for name in found if name not in told] == []
