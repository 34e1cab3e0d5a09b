"""What the tests of a run share: the cluster, what runs for it, namespaces with mappings."""

import contextlib
from collections.abc import Generator, Iterator
from functools import partial

import pytest

from accelbind.cluster import Target
from services.names import DOMAIN, FunctionName, decode
from services.process.errors import AccelbindError, ClusterError, InvalidName
from simulator.cards import NLB3
from tests.e2e.api import Api, Place, until
from tests.e2e.cluster import CONFIGURATION, CONFIGURATIONS, REGISTRATION, CantRun, Cluster
from tests.e2e.hosts import Hosts, check_host, hosts_of
from tests.e2e.interrupting import let_nobody_interrupt
from tests.e2e.pods import Broken, Pods, sample_mappings, simple
from tests.e2e.reds import Red, red_lines, run_doctor
from tests.e2e.settings import Settings, read
from tests.services import building

TOLD = pytest.StashKey[list[str]]()
LEFT = "NOT CLEANED UP"
HOSTS = pytest.StashKey[Hosts]()


@pytest.fixture(scope="session")
def settings() -> Iterator[Settings]:
    """The settings, with the address of the API server: of one `kubectl proxy` for all.

    Ctrl-C does not end it, so that what was made in the cluster can be removed.
    """
    given = read()
    try:
        with Target(given.api_server, given.kubeconfig).access(apart=True) as access:
            yield given.model_copy(update={"api_server": access.server})
    except AccelbindError as error:
        pytest.exit(f"the API server can't be reached: {error}", returncode=2)


@pytest.fixture(scope="session")
def cluster(settings: Settings, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """The cluster; what was made in it goes when all is over."""
    try:
        api = Api(settings.api_server)
    except ClusterError as error:
        pytest.exit(f"the API server can't be reached: {error}", returncode=2)
    with api:
        try:
            made = Cluster(api, settings)
            check_deployment(made)
        except CantRun as error:
            pytest.exit(str(error), returncode=2)
        except ClusterError as error:
            named = f"KUBECONFIG={settings.kubeconfig or settings.api_server}"
            pytest.exit(f"the cluster of {named} does not answer correctly: {error}", 2)
        yield made
        let_nobody_interrupt()
        told = pytestconfig.stash.setdefault(TOLD, [])
        told += [f"{LEFT}: {problem}" for problem in made.close()]
        told += made.notes


def check_deployment(cluster: Cluster) -> None:
    """See that accelbind is deployed if it is to be, and isn't otherwise."""
    places = [Place(REGISTRATION, kind) for kind in CONFIGURATIONS]
    missing = [each.kind for each in places if not cluster.api.find(each, CONFIGURATION)]
    if cluster.settings.host_processes:
        if len(missing) < len(places):
            raise CantRun(
                f"accelbind is deployed here already (webhook configuration {CONFIGURATION}): test"
                " it without HOST_PROCESSES=1"
            )
        check_host(cluster)
    elif missing:
        raise CantRun(
            f"accelbind isn't deployed here: no {' and no '.join(missing)} {CONFIGURATION}. Apply"
            " an overlay of manifests/, or run with HOST_PROCESSES=1 on a node"
        )


@pytest.fixture(scope="session")
def red_before(cluster: Cluster) -> frozenset[Red]:
    """What the doctor finds wrong before anything was made, where that isn't ours to judge."""
    if not cluster.settings.host_processes:
        return frozenset()
    return frozenset(red_lines(run_doctor(cluster)))


@pytest.fixture(scope="session")
def namespace(cluster: Cluster, red_before: frozenset[Red]) -> str:
    """A namespace, which has mappings once `suite` is up; all kinds are served."""
    del red_before  # which has looked by now
    cluster.define()
    return cluster.namespace()


@pytest.fixture(scope="session")
def suite(cluster: Cluster, namespace: str, pytestconfig: pytest.Config) -> Iterator[Hosts | None]:
    """What is under test: processes of this machine, or None where it is deployed."""
    if not cluster.settings.host_processes:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            hosts = stack.enter_context(hosts_of(cluster, namespace))
        except CantRun as error:
            pytest.exit(str(error), returncode=2)
        except (AssertionError, ClusterError) as error:
            pytest.exit(f"the processes did not start: {error}", returncode=1)
        pytestconfig.stash[HOSTS] = hosts
        yield hosts


@pytest.fixture(scope="session")
def hosts(suite: Hosts | None) -> Hosts:
    """The processes of this machine, for tests that start and stop them."""
    if suite is None:
        pytest.skip("this would change what is deployed; HOST_PROCESSES=1 tries this")
    return suite


@pytest.fixture(scope="session")
def pods(cluster: Cluster, namespace: str, suite: Hosts | None) -> Pods:
    """Pods in the namespace that has the samples' mappings, and one more."""
    del suite  # it must be up
    for item in (*sample_mappings(), building.function("other-programmed", "region", afu=NLB3)):
        item["metadata"]["namespace"] = namespace
        until(
            partial(cluster.api.create, item),
            seconds=60,
            what=f"mapping {item['metadata']['name']} to be created",
        )
    return Pods(cluster, namespace)


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test has left of its pods must not wait before the next one."""
    yield
    made = request.node.funcargs or {}  # none of a test that was interrupted
    if "pods" in made:
        made["pods"].tidy()


@pytest.fixture(scope="session")
def elsewhere(cluster: Cluster, pods: Pods) -> Pods:
    """Pods in a namespace in which nothing is mapped."""
    assert pods.namespace, "whose mappings are made"
    return Pods(cluster, cluster.namespace("other"))


@pytest.fixture(scope="session")
def can_run(cluster: Cluster, pods: Pods) -> None:
    """The node runs pods at all, with this image; otherwise nothing can be told of devices."""
    if not cluster.node:
        pytest.skip(
            "no node offers accelerators: there are no cards, or no plugin runs"
            " (accelbind doctor --cluster; NODE_NAME=… names a node)"
        )
    name = pods.create(simple("plain-first", {}))
    try:
        pods.begun(name)
    except (Broken, AssertionError) as error:
        pytest.fail(
            f"the node does not run a plain pod (IMAGE=… names an image that it has): {error}",
            pytrace=False,
        )
    finally:
        pods.remove(name)


@pytest.fixture(scope="session")
def function(
    cluster: Cluster,
    pods: Pods,
    suite: Hosts | None,
    can_run: None,  # noqa: ARG001 - what it finds out comes first
) -> str:
    """The logical name of a function that the node offers."""
    if suite is not None:
        suite.serve("af")
        return f"{DOMAIN}/arria10-nlb0"
    for resource in cluster.allocatable():
        try:
            found = decode(resource)
        except InvalidName:
            continue
        if isinstance(found, FunctionName):
            name, ids = "of-this-node", {"interface": found.interface_id, "afu": found.afu_id}
            item = building.function(name, "af", **ids, namespace=pods.namespace)
            cluster.api.create(item)
            return f"{DOMAIN}/{name}"
    pytest.skip(f"node {cluster.node} offers no functions: its mode isn't af")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the processes have told last."""
    report = yield
    hosts = item.config.stash.get(HOSTS, None)
    if report.failed and hosts is not None and hosts.folder.exists():
        report.sections += [(name, hosts.told(name)) for name in hosts.running]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what a reader should know beside the results."""
    told = terminalreporter.config.stash.get(TOLD, [])
    if told:
        terminalreporter.section("to be known")
        for line in dict.fromkeys(told):
            terminalreporter.line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Something that was left behind fails the run."""
    told = session.config.stash.get(TOLD, [])
    if any(line.startswith(LEFT) for line in told) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
