"""Fixtures of all rooms, and the rule that nothing is skipped where REQUIRE_ALL=1."""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import structlog
from anyio.pytest_plugin import get_runner
from hypothesis import HealthCheck, settings

from simulator.apiserver.standin import ApiServerStandIn
from tests.support import SHARED_IS_ABSENT, SHARED_VARIABLE, Processes, eventually, soaking

# How long an example takes says something of the machine, and nothing of the code. And a gate says
# the same of the same code each time: new examples are for `make soak` (and `SOAK=1`).
settings.register_profile(
    "steady", deadline=None, derandomize=not soaking(), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_configure() -> None:
    """Let processes of the tests be interrupted although a shell may run us in the background.

    What is run so has SIGINT ignored, and what it starts inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


NEAR_PURE_MODULES = (
    "tests/accelbind/check/test_device_types.py",
    "tests/accelbind/explain/test_command.py",
    "tests/certs/",
    "tests/docs/test_reference.py",
    "tests/golden/",
    "tests/plugin/dra/",
    "tests/plugin/test_node_events.py",
    "tests/services/",
    "tests/webhook/test_settings.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `soak` to `make soak`; they are deselected, not skipped.

    Only tests of rooms with pure modules count for coverage: tracing takes half as long as running.
    Nor do properties count, which run the lines of the tables again and again.
    """
    for item in items:
        by_chance = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_chance or not item.nodeid.startswith(NEAR_PURE_MODULES):
            item.add_marker("no_cover")
    left_out = [] if soaking() else [each for each in items if each.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if each not in left_out]


def _must_not_skip(reason: str) -> bool:
    """Whether a skip is a failure; no installation adds the shared material."""
    return os.environ.get("REQUIRE_ALL") == "1" and SHARED_IS_ABSENT not in reason


def _reason_of(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under REQUIRE_ALL=1 a skipped test is a failed one, whoever skipped it."""
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and _must_not_skip(_reason_of(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: REQUIRE_ALL=1, but {_reason_of(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips as a whole."""
    report = yield
    if report.skipped and _must_not_skip(_reason_of(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: REQUIRE_ALL=1, but {_reason_of(report.longrepr)}"
    return report


FIGURE = "figure"


@pytest.fixture
def figure(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[str], None]:
    """Note a line (a figure measured, a seed) that stands at the end of the run.

    It is a property of the test's report, which a worker process hands to the one that prints.
    """
    return lambda line: record_property(FIGURE, f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines: list[str] = [
        str(line)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, line in report.user_properties
        if name == FIGURE
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def one_event_loop() -> Iterator[None]:
    """Keep one event loop under all asynchronous tests.

    grpc.aio has one completion queue a process. What a call that was cancelled at the end of a test
    still has in it comes out a moment later; with that test's loop closed, the next one would fail.
    """
    with get_runner("asyncio", {}):
        yield


@pytest.fixture(scope="session", autouse=True)
def _environment_of_a_user() -> None:
    """Remove the tests' own variable, an unknown setting to accelbind, and the workers' COLUMNS.

    Here and not where the first is read: the process that starts the workers hands it to them.
    Workers run with COLUMNS=80, by which commands would wrap what they print.
    """
    os.environ.pop(SHARED_VARIABLE, None)
    os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> None:
    """Let a test log as it comes: one that ran a process's part in here set its level."""
    structlog.reset_defaults()


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder of the test's own with a path short enough for unix sockets (107 characters)."""
    folder = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp"))
    yield folder

    def gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    eventually(gone, what=f"the end of {folder}, in which something still writes,")


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask servers of tests directly, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def api(tmp_path: Path, no_proxy: None) -> AsyncIterator[ApiServerStandIn]:  # noqa: ARG001 - for clients
    """An API server without objects but the usual namespaces."""
    async with ApiServerStandIn(tmp_path) as standin:
        yield standin


@pytest.fixture
def processes(tmp_path: Path, short_dir: Path) -> Iterator[Processes]:  # noqa: ARG001 - outlives them
    """Start real processes; kill them after the test, and fail if one left children."""
    started = Processes(tmp_path)
    yield started
    problems = list(started.close())
    if problems:
        pytest.fail("\n".join(problems))
