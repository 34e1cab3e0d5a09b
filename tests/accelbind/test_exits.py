"""Exit codes: 0 yes, 1 no, 2 cannot say, of every command; JSON is an object with a version."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, CardSpec, Rack
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from tests.accelbind.running import commands_by_words, run
from tests.support import REPOSITORY

POD: Final = str(REPOSITORY / "examples/pods/preprogrammed.yaml")
MAPPINGS: Final = str(REPOSITORY / "examples/mappings")
NO_CONFIG: Final = ("--kubeconfig", "/nowhere")
NO_SERVER: Final = ("--api-server", "unix:/nowhere/api.sock")
CARDS: Final = ("--root", "CARDS", "--state-dir", "EMPTY")
PORT: Final = "dfl-port.0"
STORE: Final = ("--bitstreams", "STORE")
"""Words in capitals stand for files and folders of the test, see `given`."""

TABLE: Final[tuple[tuple[Any, ...], ...]] = (
    ("names region " + "ab" * 16, 0),
    ("names region x", 2),
    ("names af x y", 2),
    ("names decode x", 2),
    (("names", "list", *NO_CONFIG), 2),
    (f"explain -f {POD} --mappings {MAPPINGS}", 0),
    (f"explain -f {POD} --mappings EMPTY", 1),
    (f"explain -f {POD} --mappings {POD}", 2),
    (("explain", "-f", POD, *NO_CONFIG), 2),
    (("explain", "-f", POD, *NO_SERVER), 2),
    ("explain -f /nowhere --mappings EMPTY", 2),
    ("explain --mappings EMPTY", 2, "name a file, a folder or - for stdin"),
    (f"explain -f {POD} --mappings {MAPPINGS} --guard nvidia.com", 2),
    (f"check mappings {REPOSITORY}/simulator/demo/mappings", 0),
    (f"check mappings EMPTY --pods {POD}", 1),
    (f"check mappings {MAPPINGS} --domain x --accelerator-domain x", 2),
    (("check", "mappings", *NO_CONFIG), 2),
    ("check mappings", 2, "no cluster is known: set --kubeconfig, $KUBECONFIG or --api-server"),
    ("check mappings --api-server https://a", 2),
    (("check", "mappings", *NO_SERVER), 2),
    (f"check device-types {REPOSITORY}/manifests/device-types", 0),
    (f"check device-types {MAPPINGS}", 1),
    ("check device-types /nowhere", 2, "nowhere: No such file or directory"),
    ("check device-types EMPTY --resource-domain fpga.intel.com", 2),
    ("devices --root EMPTY --files", 0),
    ("devices --root /nonexist", 2),
    ("devices --mode none --device-types /nonexist", 2),
    ("devices --cluster --watch", 2, "--cluster"),
    ("devices --cluster --root /x", 2, "--cluster"),
    ("devices --unhealthy", 2, "--cluster"),
    ("doctor --node --root EMPTY --kubelet-dir EMPTY", 1),
    (("doctor", "--cluster", *NO_CONFIG), 2),
    (("doctor", "--cluster", *NO_SERVER), 2),
    ("doctor --only nothing", 2),
    ("certs issue --dir EMPTY --name a.svc", 0),
    ("certs issue --dir GBS --name a.svc", 2),
    ("certs show --dir /nowhere", 2),
    ("certs show --dir EMPTY", 2),
    (("certs", "show", *NO_CONFIG), 2),
    (("certs", "show", *NO_SERVER), 2),
    (("certs", "renew", *NO_SERVER), 2),
    ("certs run --api-server https://a", 2),
    ("bitstream info GBS", 0),
    ("bitstream info /nowhere", 2),
    ("bitstream info EMPTY", 2),
    (("bitstream", "install", "GBS", *STORE), 0),
    (("bitstream", "install", POD, *STORE), 2),
    ("bitstream list --bitstreams EMPTY", 0),
    ("bitstream list --bitstreams GBS", 2),
    ("bitstream verify --bitstreams EMPTY", 0),
    ("bitstream verify --bitstreams BESIDE", 1),
    ("bitstream verify --bitstreams /nowhere", 2),
    (("bitstream", "remove", A10_INTERFACE, NLB0, *STORE), 2),
    ("fpga list --root CARDS", 0),
    ("fpga list --root /nonexist", 2),
    (f"fpga info {PORT} --root CARDS", 0),
    (f"fpga info {PORT} --root EMPTY", 4),
    (("fpga", "program", PORT, "GBS", "--force", *CARDS), 0),
    (("fpga", "program", PORT, "GBS", "--kubelet-dir", "EMPTY", *CARDS), 3),
    (("fpga", "program", PORT, "/nowhere", *CARDS), 2),
    (("fpga", "reset", PORT, *CARDS), 0),
    (("fpga", "reset", "dfl-port.7", *CARDS), 4),
    (("fpga", "rebind", "region0", "--kubelet-dir", "EMPTY", *CARDS), 3),
    (("fpga", "rebind", "region7", "--kubelet-dir", "EMPTY", *CARDS), 4),
    (f"fpga clear-errors {PORT} --root CARDS", 0),
    (("fpga", "assign", "dfl-fme.0", *CARDS), 1),
    (("fpga", "release", "dfl-fme.0", *CARDS), 1),
    (
        *(("fpga", "release", "dfl-fme.0", "--port", "4294967296", *CARDS), 4),
        "no port has a number beyond 4294967295",
    ),
    ("fpga list --root CARDS -n team-a", 2, "--namespace"),
    (("ui", *NO_CONFIG), 2),
    ("demo -f /nowhere", 2),
    ("demo --mappings nope", 2),
    ("demo --device-types EMPTY --root EMPTY", 2, "no device type has a device below"),
    ("demo --device-types EMPTY -f EMPTY", 2, "has pods of its own"),
    ("demo --root EMPTY", 2, "--root goes with --device-types"),
    ("plugin --mode nope", 2),
    ("webhook --mappings EMPTY", 2),
    (("dra", "classes", *NO_CONFIG), 2),
    ("dra classes --names --mappings EMPTY", 2, "--names excludes --mappings"),
    ("dra classes --mappings EMPTY", 2, "nothing to make a DeviceClass for"),
    ("dra template nope --mappings EMPTY", 2),
    ("dra release nope --state-dir EMPTY", 2),
)
ROWS: Final[list[tuple[list[str], int, str]]] = [
    (words.split() if isinstance(words, str) else [*words], code, "".join(said))
    for words, code, *said in TABLE
]


KNOWN: Final = commands_by_words()


def test_the_table_has_every_command() -> None:
    assert {words for words in KNOWN if not any(has(row, words) for row, *_ in ROWS)} == set()


def has(row: list[str], command: str) -> bool:
    return row[: len(command.split())] == command.split()


@pytest.fixture
def given(tmp_path: Path, short_dir: Path) -> dict[str, str]:
    """What the words in capitals stand for."""
    gbs = tmp_path / "nlb0.gbs"
    gbs.write_bytes(make_gbs(A10_INTERFACE, NLB0, raw_bitstream(NLB0)))
    beside = tmp_path / "beside" / A10_INTERFACE
    beside.mkdir(parents=True)
    (beside / "nlb0.gbs").write_bytes(gbs.read_bytes())
    Rack(short_dir / "root").add_card(CardSpec(driver="dfl", interface_id=A10_INTERFACE))
    (tmp_path / "empty").mkdir()
    paths = {
        "GBS": gbs,
        "BESIDE": beside.parent,
        "CARDS": short_dir / "root",
        "STORE": tmp_path / "store",
        "EMPTY": tmp_path / "empty",
    }
    return {name: str(path) for name, path in paths.items()}


@pytest.mark.parametrize(
    ("words", "code", "said"), ROWS, ids=[" ".join(row[:4]) for row, *_ in ROWS]
)
def test_a_command_answers_yes_no_or_that_it_cannot_say(
    given: dict[str, str], words: list[str], code: int, said: str
) -> None:
    filled = [given.get(word, word) for word in words]
    (command,) = [each for name, each in KNOWN.items() if has(words, name)]
    as_json = any("-o" in each.opts for each in command.params)
    with DriverStandIn(Path(given["CARDS"])):
        flags = ("-o", "json") if as_json else ()
        done = run(*filled, *flags, driver_calls=SimulatedCalls())
    assert (done.returncode, said in done.stderr) == (code, True), done
    if not as_json:
        assert done.stderr.startswith("error: ")
        return
    document = json.loads(done.stdout or done.stderr)
    assert document["version"] == 1
    assert ("error" in document) == (done.stdout == "")
    assert document.get("exitCode", code) == code


def test_the_version_has_a_short_option() -> None:
    assert run("-V") == run("--version")
