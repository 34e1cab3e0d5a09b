"""The reference says what the code says, and leaves nothing out."""

import ast
import re
from enum import StrEnum

import pytest

from accelbind import hook
from accelbind.doctor import catalogue
from services.node.event_reasons import EventReason
from tests.manifests.test_monitoring import scraped, unreachable
from tests.support import REPOSITORY, Processes
from tests.webhook.running import start_webhook
from tools.docs import codes, metrics, reference, settings, texts
from tools.docs.__main__ import PAGES


@pytest.mark.parametrize("path", list(PAGES))
def test_what_is_committed_is_what_the_code_and_the_sources_say(path: str) -> None:
    assert (REPOSITORY / path).read_text() == PAGES[path](), "make docs"


def test_every_setting_of_every_process_is_there() -> None:
    page = reference.page()
    fields = {name for model in settings.MODELS.values() for name in model.model_fields}
    assert [name for name in fields if f"`ACCELBIND_{name.upper()}`" not in page] == []


def test_what_stands_before_commands_and_the_hook_are_there() -> None:
    page = reference.page()
    for flag in ("| `--debug` |", "| `--version` |", f"| `--socket PATH` | `{hook.SOCKET}` |"):
        assert flag in page


def test_bounds_and_defaults_are_the_models() -> None:
    page = reference.page()
    assert "| `--max-units` | `ACCELBIND_MAX_UNITS` | integer, 1 or more, up to" in page
    assert "time, 2s or more, up to 36500d | `90d` |" in page
    assert "| `af`, `region`, `regiondevel`, `units`, `bdf` | `af` |" in page


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
        certs = processes.accelbind(
            *("certs", "run", "--kubeconfig", unreachable(folder)),
            *("--metrics-port", "0", "--ports-file", folder / "certs.json"),
        )
        found["webhook"] = scraped(webhook.metrics_port)
        found["plugin"] = scraped(plugin.ports(folder / "plugin.json")["metrics"])
        found["certs run"] = scraped(certs.ports(folder / "certs.json")["metrics"])
    finally:
        webhook.process.kill()
        assert list(processes.close()) == []
    for process, registry in metrics.PROCESSES.items():
        families = {
            name: kind for name, kind in found[process].items() if not name.endswith("_created")
        }
        assert {each.name: each.kind for each in metrics.shown(registry())} == families


def test_labels_and_units_are_told() -> None:
    every = {
        each.name: each for make in metrics.PROCESSES.values() for each in metrics.shown(make())
    }
    assert every["accelbind_admission_requests_total"].labels == ("endpoint", "outcome", "reason")
    assert every["accelbind_allocations_total"].labels == ("resource", "outcome")
    assert every["accelbind_programming_seconds"].unit == "seconds"
    assert every["accelbind_certs_expiry_timestamp_seconds"].unit == "seconds since 1970"
    assert every["accelbind_devices"].unit == ""


def test_names_in_objects_of_others_are_all_told() -> None:
    """Annotations of ours, and the variables, as they stand in the rooms of the processes."""
    ours = re.compile(r"(accelbind\.dev/[a-z-]+|com\.intel\.fpga\.[a-z]+|ACCELERATOR_[A-Z]+)")
    told = codes.names()
    found = {
        node.value
        for room in ("webhook", "plugin", "certs", "services")
        for path in (REPOSITORY / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ours.fullmatch(node.value)
    }
    assert len(found) >= 5
    assert [name for name in found if name not in told] == []


def test_reasons_that_are_constants_are_told_where_they_are_made() -> None:
    page = reference.page()
    for name in ("services/admission/pod_review.py", "services/admission/mapping_review.py"):
        text = (REPOSITORY / name).read_text()
        reasons = re.findall(r'^[A-Z_]+ = "([a-z]+(?:-[a-z]+)*)"$', text, re.MULTILINE)
        assert len(reasons) >= 4
        assert [reason for reason in reasons if f"| `{reason}` |" not in page] == []


def test_every_check_of_the_doctor_is_told() -> None:
    page = reference.page()
    ids = [key for key, *_ in (*catalogue.NODE, *catalogue.CLUSTER)]
    assert len(ids) > 25
    assert [each for each in ids if f"| `{each}` |" not in page] == []


def test_help_is_shown_as_it_was_meant() -> None:
    page = reference.page()
    assert "ACCELBIND_&lt;OPTION>" in page
    assert "[bold]" not in page
    assert "[default:" not in page


def test_a_member_without_a_docstring_is_an_error() -> None:
    assert dict(texts.members(EventReason))["DeviceGone"] == "A device that was there is not."
    with pytest.raises(KeyError):
        list(texts.members(Silent))


class Silent(StrEnum):
    WORD = "word"


def test_cells_hold_anything_on_one_line() -> None:
    assert texts.cell("a | b\n  <c> `<d>`") == "a \\| b &lt;c> `<d>`"
