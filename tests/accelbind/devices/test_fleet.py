"""`accelbind devices --cluster`: what nodes answer, and what is known where they don't."""

import asyncio
import json
import sys
from typing import Any

import pytest
import yaml

from accelbind.devices import command, fleet
from accelbind.devices.fleet import read_fleet
from accelbind.dra.objects import CLAIMS
from services.kube.client import ClusterClient
from services.process.errors import ClusterError
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor.answers import Json, attributes, labelled, plugin_on, published
from tests.accelbind.running import Done, run

AF = "fpga.intel.com/af-x"
HELD = {"namespace": "team-a", "pod": "p", "container": "c", "claim": ""}
BROKEN = [{"reason": "port-errors", "message": "errors reads 0x40"}]


def device(name: str, health: str = "Healthy", **more: Any) -> Json:
    return {"device": name, "resource": AF, "health": health, **more}


def table(node: str, *devices: Json, **more: Any) -> Json:
    """What a process answers at `/devices`."""
    return {"node": node, "mode": "af", "source": "plugin", "devices": [*devices], **more}


def process_on(node: str, phase: str = "Running") -> Json:
    made = plugin_on(node, "plugin", phase)
    made["metadata"]["ownerReferences"][0]["name"] = "accelbind-plugin"
    return {"apiVersion": "v1", "kind": "Pod"} | made


def is_of_processes(request: Request) -> bool:
    """Whether a request is to a process, or lists what they prepare."""
    return "/proxy/" in request.path or request.path == CLAIMS


class Processes:
    """What the processes answer through the API server, by node: a table, an error, or nothing."""

    def __init__(self, **answers: Json | int | None) -> None:
        self.answers = answers
        self.asked = list[str]()
        self.claims: list[Json] | None = []
        """None if they may not be listed."""

    async def answer(self, request: Request) -> Response:
        if request.path == CLAIMS:  # the stand-in's own would give back what nobody uses
            if self.claims is None:
                return Response(403, b'{"kind": "Status", "code": 403, "message": "no"}')
            return Response(200, json.dumps({"metadata": {}, "items": self.claims}).encode())
        start, _, path = request.path.partition(":9102/proxy")
        node = start.rpartition("/plugin-")[2]
        assert path == "/devices"
        self.asked.append(node)
        found = self.answers[node]
        if found is None:
            await asyncio.Event().wait()
        if isinstance(found, int):
            status = {"kind": "Status", "code": found, "message": "dial tcp: connection refused"}
            return Response(found, json.dumps(status).encode())
        return Response(503 if found and found.get("problems") else 200, json.dumps(found).encode())


@pytest.fixture
async def nodes(api: ApiServerStandIn) -> Processes:
    """Five nodes: one that is well, and others of which less is known."""
    found = Processes(
        n1=table("n1", device("d0", holders=[HELD]), device("d1"), processVersion="0.1.0"),
        n2=table("n2", device("d0", "Unhealthy", reasons=BROKEN)),
        n3=503,
        n4=table("n4", problems=["the first scan is under way"]),
    )
    for name in ("n1", "n2", "n3", "n4"):
        api.put(process_on(name))
    api.put(process_on("n5", "Pending"))
    for name, counted in (("n1", {AF: "2"}), ("n2", {"fpga.intel.com/af-old": "1"}), ("n9", {})):
        api.put(labelled(name, counted | {"cpu": "4"}))
    api.put(published("n3", attributes(type="fpga", card="0000:3b:00.0"), attributes(type="rng")))
    results = [{"driver": "accelbind.dev", "pool": "n3", "device": "d1", "request": "r"}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team-b"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "q", "uid": "u"}],
        },
    }
    found.claims = [claim]
    return found


async def asked(api: ApiServerStandIn, processes: Processes, *flags: str) -> Done:
    with api.faults.answering(processes.answer, matches=is_of_processes):
        socket = f"unix:{api.kubeconfig_path.parent / 'api.sock'}"
        return await asyncio.to_thread(run, "devices", "--cluster", "--api-server", socket, *flags)


async def test_each_node_is_a_line_also_without_an_answer(
    api: ApiServerStandIn, nodes: Processes
) -> None:
    done = await asked(api, nodes)
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines, _, total = done.stdout.splitlines()
    assert " ".join(head.split()) == "NODE MODE VERSION DEVICES FREE USED UNHEALTHY NOTE"
    assert [line.split()[:7] for line in lines] == [
        ["n1", "af", "0.1.0", "2", "1", "1", "0"],
        ["n2", "af", "-", "1", "0", "0", "1"],
        ["n3", "slices", "-", "2", "1", "1", "0"],
        ["n4", "-", "-", "?", "?", "?", "?"],
        ["n5", "-", "-", "?", "?", "?", "?"],
    ]
    notes = (
        "",
        "the kubelet counts 1 of fpga.intel.com/af-old",
        "connection refused",
        "the first scan is under way",
        "its pod plugin-n5 is Pending",
    )
    assert [words for words, line in zip(notes, lines, strict=True) if words not in line] == []
    assert total == "5 nodes, 5 devices: 2 free, 2 used, 1 unhealthy; 3 nodes without an answer"
    assert sorted(nodes.asked) == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--node", "n1"], {"n1": ["d0", "d1"]}),
        (
            ["--resource", "af-x", "--node", "n1", "--node", "n2"],
            {"n1": ["d0", "d1"], "n2": ["d0"]},
        ),
        (["--resource", "rng", "--node", "n3"], {"n3": ["d2"]}),
        (["--unhealthy"], {"n2": ["d0"], "n3": [], "n4": [], "n5": []}),
        (["-n", "team-a", "--node", "n1", "--node", "n2"], {"n1": ["d0"]}),
        (["--namespace", "team-b"], {"n3": ["d1"], "n4": [], "n5": []}),
    ],
)
async def test_devices_are_chosen_and_unknown_nodes_stay(
    api: ApiServerStandIn, nodes: Processes, flags: list[str], expected: dict[str, list[str]]
) -> None:
    done = await asked(api, nodes, *flags, "-o", "yaml")
    shown = yaml.safe_load(done.stdout)["nodes"]
    assert {each["node"]: [one["device"] for one in each["devices"]] for each in shown} == expected
    done = await asked(api, nodes, *flags, "--devices")
    rows = [line.split()[:2] for line in done.stdout.splitlines()[1:]]
    assert [row for row in rows if not row[0].endswith(":")] == [
        [node, name] for node, names in expected.items() for name in names
    ]


@pytest.mark.parametrize(
    ("annotation", "of_pod", "said", "problem"),
    [
        ("region", "af", {}, "it is to serve mode region, and its plugin serves af"),
        ("af", "region", {}, ""),
        ("", "region", {}, "it is to serve mode region, and its plugin serves af"),
        ("nonsense", "af", {}, ""),
        ("", "", {}, ""),
        ("region", "af", {"source": "dra", "mode": "none"}, ""),
    ],
)
async def test_a_node_whose_plugin_started_in_another_mode_is_named(
    api: ApiServerStandIn, annotation: str, of_pod: str, said: Json, problem: str
) -> None:
    node, pod = labelled("n1", {}), process_on("n1")
    node["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": annotation}
    pod["spec"]["containers"][0]["env"] = [{"name": "ACCELBIND_MODE", "value": of_pod}]
    for each in (node, pod):
        api.put(each)
    done = await asked(api, Processes(n1=table("n1", **said)), "-o", "json")
    (found,) = json.loads(done.stdout)["nodes"]
    assert (bool(found["problems"]), problem in "".join(found["problems"])) == (bool(problem), True)


@pytest.mark.parametrize(("first", "asked_nodes"), [(None, 4), (503, 6)])
async def test_a_port_that_is_closed_everywhere_is_tried_at_some_nodes_only(
    api: ApiServerStandIn, monkeypatch: pytest.MonkeyPatch, first: int | None, asked_nodes: int
) -> None:
    monkeypatch.setattr(fleet, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(fleet, "AT_ONCE", 4)
    names = [f"n{number}" for number in range(6)]
    processes = Processes(**dict.fromkeys(names) | {"n0": first})
    for name in names:
        api.put(process_on(name))
    done = await asked(api, processes)
    assert len(processes.asked) == asked_nodes
    assert ("networkPolicies.apiServers" in done.stderr) is (first is None)
    assert done.stdout.count("within 3 s") == asked_nodes - bool(first)
    assert done.stdout.count("not asked") == 6 - asked_nodes


async def test_without_the_right_to_list_claims_it_is_unknown_what_is_free(
    api: ApiServerStandIn, nodes: Processes
) -> None:
    nodes.claims = None
    done = await asked(api, nodes, "--node", "n3", "--node", "n1")
    assert [line.split()[3:7] for line in done.stdout.splitlines()[1:3]] == [
        ["2", "1", "1", "0"],
        ["2", "?", "?", "0"],
    ]
    assert "4 devices: 1 free, 1 used, 0 unhealthy; holders of 2 devices unknown" in done.stdout
    assert "resourceclaims" in done.stderr


async def test_a_node_that_does_not_exist_is_named(api: ApiServerStandIn, nodes: Processes) -> None:
    done = await asked(api, nodes, "--node", "n1", "--node", "n77")
    assert done.stderr == "warning: node n77 neither runs accelbind nor has its devices\n"
    assert "1 node, 2 devices" in done.stdout


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (table("n1", problems=[""]), "its process answers 503"),
        (table("n2", device("d0")), "the process of node n2 answers in its place"),
    ],
)
async def test_an_answer_that_says_nothing_of_a_node_is_an_error(
    api: ApiServerStandIn, nodes: Processes, answer: Json, error: str
) -> None:
    nodes.answers["n1"] = answer
    done = await asked(api, nodes, "--node", "n1", "-o", "json")
    (node,) = json.loads(done.stdout)["nodes"]
    assert (node["error"], node["devices"]) == (error, [])


async def test_missing_rights_are_told_and_the_rest_is_shown(
    api: ApiServerStandIn, nodes: Processes
) -> None:
    nodes.answers = dict.fromkeys(nodes.answers, 403)
    done = await asked(api, nodes, "-o", "json")
    found = json.loads(done.stdout)
    assert "pods/proxy" in found["problems"][0]
    assert {each["node"]: each["source"] for each in found["nodes"]}["n3"] == "slices"
    with api.faults.failing(
        403, matches=lambda request: request.path in ("/api/v1/pods", "/api/v1/nodes")
    ):
        done = await asked(api, nodes, "-o", "json")
    nodes_found = [each["node"] for each in json.loads(done.stdout)["nodes"]]
    assert nodes_found == ["n1", "n2", "n3", "n4", "n5"]
    assert done.stderr.count("warning: ") == 3
    with api.faults.failing(403, matches=lambda request: "/proxy/" not in request.path):
        async with ClusterClient(api.access) as client:
            with pytest.raises(ClusterError, match="403"):
                await read_fleet(client)


def test_a_terminal_shows_a_bar_once_asking_takes_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with command.progress_bar() as step:
        step(1, 2)
        assert not capsys.readouterr().err
        monkeypatch.setattr(command, "PATIENCE", -1.0)
        step(2, 2)
    assert "asking nodes" in capsys.readouterr().err
