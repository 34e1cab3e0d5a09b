"""Exit codes: 0 yes, 1 no, 2 cannot say, of every command; JSON is an object with a version."""

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.running import run_process
from tests.support import REPOSITORY

pytestmark = pytest.mark.anyio

POD: Final = str(REPOSITORY / "examples/pods/preprogrammed.yaml")
MAPS: Final = "MAPS"
"""Stands for an empty folder of mappings."""
NO_SERVER = ("--kubeconfig", "/nowhere")

TABLE: Final = (
    (("names", "region", "ab" * 16), 0),
    (("names", "region", "x"), 2),
    (("explain", "-f", POD, "--mappings", "examples/mappings"), 0),
    (("explain", "-f", POD, "--mappings", MAPS), 1),
    (("explain", "-f", POD, *NO_SERVER), 2),
    (("explain", "-f", "/nowhere", "--mappings", MAPS), 2),
    (("check", "mappings", "simulator/demo/mappings"), 0),
    (("check", "mappings", MAPS, "--pods", POD), 1),
    (("check", "mappings", *NO_SERVER), 2),
    (("devices", "--root", MAPS, "--files"), 0),
    (("devices", "--root", "/nonexist"), 2),
    (("doctor", "--node", "--root", MAPS, "--kubelet-dir", MAPS), 1),
    (("doctor", "--cluster", *NO_SERVER), 1),
    (("doctor", "--only", "nothing"), 2),
    (("certs", "issue", "--dir", MAPS, "--name", "a.svc"), 0),
    (("certs", "show", "--dir", "/nowhere"), 2),
    (("certs", "show", *NO_SERVER), 2),
    (("bitstream", "list", "--bitstreams", MAPS), 0),
    (("bitstream", "info", "/nowhere"), 2),
    (("fpga", "list", "--root", MAPS), 0),
    (("fpga", "info", "dfl-port.0", "--root", MAPS), 4),
)


@pytest.mark.parametrize(("words", "code"), TABLE, ids=[" ".join(row[0]) for row in TABLE])
def test_a_command_answers_yes_no_or_that_it_cannot_say(
    tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    done = run_process(*(tmp_path if word == MAPS else word for word in words), "-o", "json")
    assert done.returncode == code, done
    document = json.loads(done.stdout or done.stderr)
    assert document["version"] == 1
    assert ("error" in document) == (done.stdout == "")
    assert document.get("exitCode", code) == code


def test_mappings_of_the_demo_that_do_not_exist_are_no_answer() -> None:
    assert run_process("demo", "-f", POD, "--mappings", "nope").returncode == 2


def test_the_version_has_a_short_option() -> None:
    assert run_process("-V") == run_process("--version")


async def test_without_rights_there_is_no_answer(tmp_path: Path) -> None:
    async with ApiServerStandIn(tmp_path) as api:
        with api.faults.failing(403, matches=lambda request: request.path != "/version"):
            for words in (
                ("check", "mappings", "-n", "x"),
                ("doctor", "--cluster", "--only", "cluster.webhooks"),
            ):
                flags = ("--kubeconfig", api.kubeconfig_path)
                done = await asyncio.to_thread(run_process, *words, *flags)
                assert done.returncode == 2, done
