"""What the service `try` of docker-compose.yml runs, on the demo's processes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.demo.stage import Stage
from simulator.demo.suite import Suite, raise_suite
from tests.support import Process, Processes, python_module


@pytest.fixture
def suite(short_dir: Path) -> Iterator[Suite]:
    stage = Stage(short_dir)
    try:
        yield raise_suite(stage)
    finally:
        stage.stop()


def try_pods(processes: Processes, folder: Path, *more: str | Path, port: int = 0) -> Process:
    return processes.start(
        python_module(
            "simulator.demo.try_pods",
            *("--kubeconfig", folder / "api" / "kubeconfig", "--ca", folder / "tls" / "ca.crt"),
            *("--webhook", f"https://127.0.0.1:{port}", "--dir", folder, *more),
        )
    )


def test_the_pods_can_be_tried_twice(suite: Suite, processes: Processes, short_dir: Path) -> None:
    held = []
    for _ in range(2):
        tried = try_pods(processes, short_dir, port=suite.ports["webhook"])
        assert tried.wait(60) == 0, tried.transcript()
        found = re.search(r"all (\d\d) expectations held, everything stays up", tried.stdout)
        assert found, tried.stdout
        held.append(int(found[1]))
        assert "dfl-port.0 reset" in tried.stdout
    names = {each["metadata"]["name"] for each in suite.api.get("/api/v1/pods")["items"]}
    assert names == {"function", "region", "two-functions", "init-container"}
    assert held[1] < held[0]  # the cards have their functions: nothing was to be programmed
