"""What each golden file holds, from the product as it is now."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonpatch

from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from tests.golden import adapter
from tests.services.ofs_cards import AFUS, OfsNode
from tests.support import REPOSITORY, SHARED, clean_environment, shared_dir

FOLDER: Final = Path(__file__).parent / "files"
ENDPOINTS: Final = ("/mutate", "/validate")
WIDTH: Final = "100"

Object = dict[str, Any]


# Reviews -----------------------------------------------------------------------------------------
# The 500 reviews were generated once: three of four pods are usual, the others have odd names,
# quantities, variables and shapes; every tenth review is about something else, and every tenth is
# broken.

DOMAINS: Final = ("fpga.intel.com", "fpga.example.com")


def generated_reviews() -> Iterator[str]:
    """Bytes that are no UTF-8 are escaped in the file."""
    lines = (FOLDER / "sent-reviews.jsonl").read_text().splitlines()
    for number, sent in enumerate(map(json.loads, lines)):
        yield _reviewed(number, sent["about"], sent["body"].encode("utf-8", "surrogateescape"))


def recorded_reviews() -> Iterator[str]:
    for number, path in enumerate(sorted((SHARED / "recorded").glob("*/admissionreview-*.json"))):
        yield _reviewed(number, f"{path.parent.name}/{path.stem}", path.read_bytes())


@cache
def _webhook() -> adapter.Webhook:
    """Some of its mappings can't be used."""
    lines = (FOLDER / "mappings.jsonl").read_text().splitlines()
    return adapter.Webhook(map(json.loads, lines), DOMAINS)


def _reviewed(number: int, about: str, body: bytes) -> str:
    """The answers to a review, and those to the pod as it was patched, in a line.

    `/validate` mostly says the same as `/mutate`; the file has `=` then.
    """
    found: Object = {"case": number, "about": about}
    found["sha256"] = hashlib.sha256(body).hexdigest()[:12]
    for endpoint in ENDPOINTS:
        found[endpoint] = _answer(endpoint, body)
    if patch := found["/mutate"].get("patch"):
        again = json.loads(body)
        again["request"]["object"] = jsonpatch.apply_patch(again["request"]["object"], patch)
        for endpoint in ENDPOINTS:
            found[f"{endpoint} again"] = _answer(endpoint, json.dumps(again).encode())
        _shorten(found, " again")
    _shorten(found, "")
    return _line(found)


def _shorten(found: Object, when: str) -> None:
    mutate, validate = (f"{endpoint}{when}" for endpoint in ENDPOINTS)
    if found[validate] == found[mutate]:
        found[validate] = "="


def _answer(endpoint: str, body: bytes) -> Object:
    """What an answer says, without its spelling: the patch as values, and no uid."""
    status, answer, counted = _webhook().answer(endpoint, body)
    found = json.loads(answer)
    if status != 200:
        kept = {"http": status, "kind": found["kind"], "message": found["message"]}
        return {"counted": counted, **kept}
    if (found["kind"], found["apiVersion"]) != ("AdmissionReview", "admission.k8s.io/v1"):
        raise AssertionError(f"no review: {found}")
    response: Object = found["response"]
    del response["uid"]
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"], validate=True))
    return {"counted": counted, **response}


# Devices -----------------------------------------------------------------------------------------


def offers_of_broken_cards() -> Iterator[str]:
    """For each driver, fault and mode: broken from the start, and broken after it was offered.

    A mode in which nothing differs from the healthy node is left out of a fault's line.
    """
    for driver in ("opae", "dfl"):
        with tempfile.TemporaryDirectory() as folder:
            yield from _offers_of_broken_cards(Path(folder), driver)


def _offers_of_broken_cards(root: Path, driver: str) -> Iterator[str]:
    rack = Rack(root)
    broken = rack.add_card(CardSpec(driver=driver, ports=2))
    rack.add_card(CardSpec(driver=driver, numa_node=1))
    healthy = adapter.Node(root).offered()
    yield _line({"driver": driver, "fault": "", **healthy})
    for fault in Fault:
        node = adapter.Node(root)
        if node.offered() != healthy:
            raise AssertionError(f"something is left of the fault before {fault}")
        rack.break_(broken, fault)
        looks = {"later": node.offered(), "from the start": adapter.Node(root).offered()}
        rack.heal(broken, fault)
        for when, found in looks.items():
            differ = {mode: table for mode, table in found.items() if table != healthy[mode]}
            yield _line({"driver": driver, "fault": fault, "when": when, **differ})


def offers_of_snapshots() -> Iterator[str]:
    for path in sorted((SHARED / "hardware").glob("*.tar.*")):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(path) as archive:
                archive.extraction_filter = as_it_is  # Python 3.11.3 has no argument for it
                archive.extractall(folder)  # noqa: S202 - our own snapshots
            (root,) = [each.parent for each in Path(folder).glob("*/sys")]
            name = path.name.partition(".tar")[0]
            yield _line({"snapshot": name, **adapter.Node(root).offered()})
            functions = sorted(root.glob("sys/bus/pci/devices/*/physfn"))
            if functions:
                node = OfsNode(root)
                for function, afu_id in zip(functions, AFUS, strict=True):
                    node.bind(function.parent.name, afu_id)
                name += ", its virtual functions bound to vfio-pci"
                yield _line({"snapshot": name, **adapter.Node(root).offered()})


def as_it_is(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo | None:
    """Keep links that lead out of a snapshot, as on its host; skip what describes processors."""
    return None if re.search(r"^[^/]+/(proc|sys/devices/system)/", member.name) else member


# What people and scripts see ---------------------------------------------------------------------


def help_pages() -> Iterator[str]:
    """The help of every command, on a terminal of fixed width without colours."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.adapter"],
        cwd=REPOSITORY,
        env=clean_environment() | {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    yield from (line.rstrip() for line in done.stdout.splitlines())


# All of them -------------------------------------------------------------------------------------

FILES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "reviews.jsonl": generated_reviews,
    "broken-cards.jsonl": offers_of_broken_cards,
    "help.txt": help_pages,
}
"""The golden files that can be made anywhere."""

FROM_SHARED: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "recorded-reviews.jsonl": recorded_reviews,
    "snapshots.jsonl": offers_of_snapshots,
}
"""The golden files whose input is in the shared material, beside the clone."""


def makeable() -> dict[str, Callable[[], Iterator[str]]]:
    return FILES | (FROM_SHARED if shared_dir() is not None else {})


def _line(value: Object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
