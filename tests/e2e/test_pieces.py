"""Pieces of the end-to-end suite that only other clusters than the simulator need."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from services.process.errors import ClusterError
from simulator.apiserver.standin import ApiServerStandIn
from tests.e2e import api
from tests.e2e.api import Api, Place
from tests.e2e.hosts import (
    EVERYWHERE,
    as_it_was,
    listening_address,
    local_address,
)
from tests.e2e.pods import SHOW, Given, told_by
from tests.support import require


def test_what_a_container_writes_is_what_is_read_of_it(tmp_path: Path) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "intel-fpga-port.1").touch()
    (devices / "dfl-port.0").symlink_to("/dev/null")
    script = SHOW.replace("/dev/", f"{devices}/")
    given = {"FPGA_AFU_1": "d8424dc4", "ACCELERATOR_UNITS": "0,1", "ACCELBIND_AF": "5e:00.0"}
    env = given | {"PATH": os.environ["PATH"], "HOME": "/"}
    done = subprocess.run([require("sh"), "-c", script], env=env, check=False)
    message = (devices / "termination-log").read_text()
    state = {"name": "show", "state": {"terminated": {"exitCode": 0, "message": message}}}
    (told,) = told_by({"containerStatuses": [state], "initContainerStatuses": None})
    seen = Given(frozenset({f"{devices}/dfl-port.0"}), given)
    assert (done.returncode, told) == (0, ("show", seen)), "and the regular file is none"


def test_the_address_is_that_from_which_the_api_server_is_reached() -> None:
    assert local_address("https://127.0.0.1:6443") == "127.0.0.1"
    assert listening_address("127.0.0.1") == "127.0.0.1"
    assert listening_address("192.0.2.1") == EVERYWHERE, "no address of this machine"
    assert listening_address("node.example") == EVERYWHERE


@pytest.mark.anyio
async def test_an_api_server_that_goes_silent_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "OUTAGE_PAUSE", 1.0)
    namespaces = Place("v1", "Namespace")
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made"}}
    async with ApiServerStandIn(tmp_path) as server:
        asking = await asyncio.to_thread(Api, server.kubeconfig_path)
        with asking:
            before = await asyncio.to_thread(asking.list, namespaces)
            async with server.away():
                again = asyncio.create_task(asyncio.to_thread(asking.list, namespaces))
                with pytest.raises(ClusterError):  # what was made once isn't made twice
                    await asyncio.to_thread(asking.create, made)
            assert await again == before


def test_a_run_starts_without_what_a_plugin_left_and_puts_it_back(tmp_path: Path) -> None:
    plugins = tmp_path / "device-plugins"
    mark = plugins / "accelbind" / "untrusted.json"
    mark.parent.mkdir(parents=True)
    mark.write_text("before")
    others = {"kubelet.sock", "accelbind-other.sock"}
    for name in others:
        (plugins / name).touch()
    with as_it_was(tmp_path):
        assert {path.name for path in plugins.iterdir()} == others
        mark.parent.mkdir()
        mark.write_text("of the run")
        (plugins / "accelbind-af.sock").touch()
    assert {path.name for path in plugins.iterdir()} == others | {"accelbind"}
    assert mark.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["device-plugins"]
