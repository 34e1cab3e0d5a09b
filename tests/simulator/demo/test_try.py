"""What the service `try` of docker-compose.yml runs, on the demo's processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.demo.cluster import demo_world
from simulator.demo.stage import Stage
from simulator.demo.suite import Suite, raise_suite
from tests.support import Process, Processes, python_module


@pytest.fixture
def suite(short_dir: Path) -> Iterator[Suite]:
    stage = Stage(short_dir)
    try:
        yield raise_suite(stage, demo_world())
    finally:
        stage.stop()


def try_pods(processes: Processes, folder: Path, *more: str | Path, port: int = 0) -> Process:
    return processes.start(
        python_module(
            "simulator.demo.try_it",
            "pods",
            *("--kubeconfig", folder / "api" / "kubeconfig", "--ca", folder / "tls" / "ca.crt"),
            *("--webhook", f"https://127.0.0.1:{port}", "--dir", folder, *more),
        )
    )


def test_the_pods_can_be_tried_twice(suite: Suite, processes: Processes, short_dir: Path) -> None:
    for programmed in (True, False):  # the second time the cards have their functions
        tried = try_pods(processes, short_dir, port=suite.webhook_port)
        assert tried.wait(300) == 0, tried.transcript()
        assert "7 of 7 pods behaved as expected; everything keeps running" in tried.stdout
        assert ("programmed dfl-port.0" in tried.stdout) is programmed
    names = {each["metadata"]["name"] for each in suite.api.ask("GET", "/api/v1/pods")["items"]}
    assert names == {"function", "region", "two-functions", "init-container", "gpu"}
