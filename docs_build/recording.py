"""Records the run that the dashboard's pictures are drawn from: `python -m docs_build.recording`.

The real webhook, plugins and certificates' process, on the demo's nodes, cards and stand-ins, are
scraped while pods come and go, cards warm up, somebody else programmes regions, and a card breaks.
Only what the dashboard asks for is kept.
"""

import contextlib
import math
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from accelbind.demo import cluster
from accelbind.demo.acts import PODS
from accelbind.demo.api import Api, Refused
from accelbind.demo.stage import Stage
from accelbind.demo.suite import Suite, raise_suite
from docs_build.dashboard import RUN, queries
from docs_build.samples import Samples, Series, text_of
from services.atomic import replace_file

SCRAPES: Final = 40
EVERY: Final = 5.0
STAYS: Final = 3
"""Scrapes until a pod goes."""
PROGRAMMES: Final = 4
"""Scrapes from once that somebody else programmes the regions to the next."""
BREAKS: Final = 26
"""Scrape at which a card's firmware crashes."""

_NAMESPACE: Final = "/api/v1/namespaces"
_SYSTEM: Final = "accelbind-system"
_METRIC: Final = re.compile(r"accelbind_\w+")


@dataclass(slots=True)
class Recorder:
    """Gathers what is scraped.

    Args:
        wanted: The series to keep, by name.
    """

    wanted: frozenset[str]
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[float | None]] = field(
        default_factory=dict
    )
    scrapes: int = 0

    def scrape(self, targets: Mapping[tuple[str, str], int]) -> None:
        """Scrapes all targets once.

        Args:
            targets: Job and node → port.
        """
        for (job, node), port in targets.items():
            for name, labels, value in _scraped(port):
                if name in self.wanted:
                    given = {"job": job, "node": node} if node else {"job": job}
                    key = (name, tuple(sorted((labels | given).items())))
                    values = self.found.setdefault(key, [])
                    values += [None] * (self.scrapes - len(values))
                    values.append(value)
        self.scrapes += 1

    def samples(self, begun: float) -> Samples:
        """All of it."""
        series = [
            Series(name, dict(labels), (*values, *[None] * (self.scrapes - len(values))))
            for (name, labels), values in self.found.items()
        ]
        return Samples(EVERY, begun, tuple(series))


def _scraped(port: int) -> Iterator[tuple[str, dict[str, str], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, dict(sample.labels), sample.value


def main() -> None:
    """Records a run and keeps it."""
    with tempfile.TemporaryDirectory(prefix="run-") as name:
        stage = Stage(Path(name))
        try:
            suite = raise_suite(stage)
            samples = _record(stage, suite)
        finally:
            stage.stop()
    replace_file(RUN, text_of(samples).encode(), mode=0o644)
    print(f"· {RUN.name}: {len(samples.series)} series, {samples.count} scrapes")


def _record(stage: Stage, suite: Suite) -> Samples:
    recorder = Recorder(frozenset(_METRIC.findall(" ".join(queries()))))
    targets = {
        ("accelbind-webhook", ""): _port(stage, "webhook"),
        ("accelbind-certs", ""): _start_certs(stage, suite.api),
    }
    for plan in cluster.NODES:
        targets["accelbind-plugin", plan.name] = _port(stage, f"plugin-{plan.name}")
    begun, here = time.time(), _Pods(suite.api)
    for number in range(SCRAPES):
        here.play(number)
        _warm(stage.folder, number)
        if number % PROGRAMMES == 0:
            _programme(stage.folder)
        if number == BREAKS:
            _crash(stage.folder)
        time.sleep(max(0.0, begun + (number + 1) * EVERY - time.time()))
        recorder.scrape(targets)
    return recorder.samples(begun + EVERY)


def _port(stage: Stage, name: str) -> int:
    return int(stage.announced(stage.folder / f"{name}.ports", name)["metrics"])


def _start_certs(stage: Stage, api: Api) -> int:
    """Runs the certificates' process beside the demo's own certificates, which stay as they are."""
    with contextlib.suppress(Refused):
        api.post(
            _NAMESPACE, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": _SYSTEM}}
        )
    for name in ("accelbind-ca", "accelbind-webhook-tls"):
        secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}}
        api.post(f"{_NAMESPACE}/{_SYSTEM}/secrets", secret)
    stage.start(
        "certs",
        "accelbind",
        *("certs", "run", "--kubeconfig", stage.folder / "api" / "kubeconfig"),
        *("--namespace", _SYSTEM, "--webhook-config", "of-this-run", "--interval", "2s"),
        *("--metrics-port", "0", "--ports-file", stage.folder / "certs.ports"),
    )
    return _port(stage, "certs")


@dataclass(slots=True)
class _Pods:
    """Pods that come and go: at each scrape those whose turn it is, as the demo has them."""

    api: Api
    there: dict[str, int] = field(default_factory=dict)

    def play(self, number: int) -> None:
        for name in [name for name, until in self.there.items() if until <= number]:
            self.api.delete(f"{PODS}/{name}")
            del self.there[name]
        for turn, plan in enumerate(cluster.PODS):
            if number % (2 + turn) == turn % 2:
                self._create(plan.load(), number)

    def _create(self, pod: dict[str, Any], number: int) -> None:
        pod["metadata"]["name"] = f"{pod['metadata']['name']}-{number}"
        with contextlib.suppress(Refused):
            self.api.post(PODS, pod)
            self.there[pod["metadata"]["name"]] = number + STAYS


def _warm(folder: Path, number: int) -> None:
    """Has the cards of both nodes warm up and cool down, each at its own pace."""
    for pattern, spelled in _SENSORS.items():
        for which, path in enumerate(sorted(folder.glob(f"node-*/root/sys/**/{pattern}"))):
            share = math.sin(number / (5 + which)) * 0.2 + which * 0.05 + 1
            path.write_text(f"{spelled(share)}\n")


_SENSORS: Final[dict[str, Callable[[float], str]]] = {
    "thermal_mgmt/temperature": lambda share: f"{45 * share:.0f}",
    "temp1_input": lambda share: f"{48_000 * share:.0f}",
    "power_mgmt/consumed": lambda share: hex(round(24 * share)),
    "power1_input": lambda share: f"{26_000_000 * share:.0f}",
}
"""Files that tell temperatures and power, and how a share of the usual is written there."""


def _programme(folder: Path) -> None:
    """Puts the other function into the regions, as somebody would who programmes by hand."""
    for path in folder.glob("node-region/root/sys/**/afu_id"):
        path.write_text(f"{cluster.NLB3}\n")


def _crash(folder: Path) -> None:
    """The driver's word for crashed firmware, in the last port of the node in mode af."""
    *_, last = sorted(folder.glob("node-af/root/sys/**/afu_id"))
    last.write_text("f" * 32 + "\n")


if __name__ == "__main__":
    main()
