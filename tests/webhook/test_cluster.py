"""The webhook over an API server: both real processes, and mappings that come and go."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import lightkube
import pytest
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta

from services.process.errors import InvalidSettings
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.support import Process, Processes, eventually, eventually_async, python_module
from tests.webhook.reviews import AFU, INTERFACE, body, pod, response_of
from tests.webhook.running import Webhook, start_webhook
from webhook.settings import WebhookSettings
from webhook.sources import choose_source

Function = create_namespaced_resource(
    "fpga.intel.com", "v2", "AcceleratorFunction", "acceleratorfunctions"
)
STALENESS = 5


class Cluster:
    """An API server that can be stopped and come back on the same port.

    It has another certificate and token then, as the kubeconfig says. Its store is in memory:
    `restart` creates again what it had, which gets the same versions.
    """

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._folder = folder
        self._port = 0
        self._starts = 0
        self._names: list[str] = []
        self.kubeconfig = folder / "api" / "kubeconfig"
        self.process = self.start()

    def start(self) -> Process:
        self._starts += 1
        ports = self._folder / f"api-{self._starts}.json"
        flags = ("--port", str(self._port), "--ports-file", ports)
        command = python_module("simulator.apiserver", "--dir", self._folder / "api", *flags)
        self.process = self._processes.start(command, name=f"api-{self._starts}")
        self._port = self.process.ports(ports)["https"]
        return self.process

    def restart(self) -> None:
        self.start()
        names, self._names = self._names, []
        for name in names:
            self.create(name)

    def create(self, name: str) -> None:
        self._names.append(name)
        with lightkube.Client(lightkube.KubeConfig.from_file(self.kubeconfig)) as client:
            spec = {"afuId": AFU, "interfaceId": INTERFACE, "mode": "af"}
            metadata = ObjectMeta(name=name, namespace="default")
            client.create(Function(metadata=metadata, spec=spec))

    def delete(self, name: str) -> None:
        self._names.remove(name)
        with lightkube.Client(lightkube.KubeConfig.from_file(self.kubeconfig)) as client:
            client.delete(Function, name, namespace="default")


@pytest.fixture
def cluster(processes: Processes, tmp_path: Path) -> Cluster:
    return Cluster(processes, tmp_path)


@pytest.fixture
def over(tmp_path: Path) -> Iterator[Callable[..., Webhook]]:
    """Start a webhook over a kubeconfig."""
    started: list[Webhook] = []

    def starter(kubeconfig: Path, *arguments: str) -> Webhook:
        folder = tmp_path / f"webhook-{len(started)}"
        folder.mkdir()
        flags: tuple[str | Path, ...] = ("--kubeconfig", kubeconfig, *arguments)
        started.append(start_webhook(folder, *flags, mappings=None))
        return started[-1]

    yield starter
    for one in started:
        one.process.kill()


def admits(webhook: Webhook, name: str) -> bool:
    answer = webhook.ask("/mutate", body(pod(f"fpga.intel.com/{name}")))
    return answer.status == 200 and bool(response_of(answer.body)["allowed"])


def ready(webhook: Webhook) -> bool:
    return webhook.plain("/readyz").status == 200


def test_mappings_follow_an_api_server_that_is_away_comes_goes_and_returns(
    cluster: Cluster, over: Callable[..., Webhook]
) -> None:
    cluster.create("early")
    cluster.process.kill()
    webhook = over(cluster.kubeconfig, "--max-staleness", str(STALENESS))

    # Away from the start: alive, not ready, and no pod is refused for a mapping that may exist.
    assert eventually(lambda: "can't be reached" in webhook.plain("/readyz").text)
    assert webhook.plain("/readyz").text.startswith("mappings not loaded (the API server https://")
    asked = webhook.ask("/mutate", body(pod("fpga.intel.com/early")))
    assert asked.status == 503
    assert "the mappings aren't loaded yet: try again in a moment" in asked.text
    assert webhook.plain("/healthz").status == 200

    # It comes: mappings count as soon as they are created or deleted.
    cluster.restart()
    assert eventually(lambda: ready(webhook))
    assert eventually(lambda: admits(webhook, "early"))
    assert not admits(webhook, "kept")
    cluster.create("kept")
    assert eventually(lambda: admits(webhook, "kept"))
    assert webhook.metric('accelbind_mappings{kind="AcceleratorFunction"}') == 2
    cluster.delete("early")
    assert eventually(lambda: not admits(webhook, "early"))

    # It goes: the last mappings serve on, and are too old after a while.
    cluster.process.kill()
    assert eventually(lambda: webhook.metric("accelbind_mappings_updates_failing") == 1)
    event = "mappings are not being updated, the known ones stay in use"
    assert float(str(eventually(lambda: webhook.events(event))[0]["age"])) >= 0
    assert eventually(lambda: not ready(webhook))
    assert webhook.plain("/readyz").text.startswith(f"mappings are over {STALENESS} s old (the API")
    assert webhook.metric("accelbind_ready") == 0
    assert admits(webhook, "kept")

    # Once refused, it lists again: a new store with lower versions is silent about the old ones.
    assert eventually(lambda: "can't be reached" in webhook.plain("/readyz").text)

    # It returns, with another certificate and token.
    cluster.restart()
    cluster.create("fresh")
    assert eventually(lambda: admits(webhook, "fresh"))
    assert eventually(lambda: ready(webhook))
    assert eventually(lambda: webhook.metric("accelbind_mappings_updates_failing") == 0)
    assert webhook.process.terminate() == 0


def test_nothing_to_take_mappings_from_is_said_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    settings = WebhookSettings(tls_cert=Path("c"), tls_key=Path("k"))
    with pytest.raises(InvalidSettings, match="--mappings or --kubeconfig is required"):
        choose_source(settings)


@pytest.mark.anyio
@pytest.mark.parametrize(("allowed", "seconds"), [(None, range(22, 31)), (8, range(3, 5))])
async def test_watches_are_short_so_that_silence_is_soon_noticed(
    tmp_path: Path, allowed: float | None, seconds: range
) -> None:
    async with ApiServerStandIn(tmp_path, Options(plain=True)) as server:
        settings = WebhookSettings(
            tls_cert=tmp_path / "c",
            tls_key=tmp_path / "k",
            kubeconfig=server.kubeconfig_path,
            max_staleness=allowed,
        )
        source = choose_source(settings)
        following = asyncio.create_task(source.follow())
        await eventually_async(lambda: len(server.watches) == 3)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    requests = [seen.request for seen in server.seen if seen.request.is_watch]
    asked = [int(each.query["timeoutSeconds"]) for each in requests]
    assert len(asked) == 3
    assert all(each in seconds for each in asked), asked
