"""The product behaves as the golden files say; `make golden` rewrites them."""

import json
from collections.abc import Iterator
from itertools import zip_longest

import pytest

from tests.golden import adapter
from tests.golden.files import FILES, FROM_SHARED, read_answer
from tests.golden.reviews import DOMAINS, FOLDER, mappings, reviews
from tests.support import require_shared

SHOWN = 5
REASONS = {
    *("patched", "allowed nothing-asked", "allowed mirror-pod", "allowed already-physical"),
    *("allowed not-a-pod", "allowed not-created", "denied unknown-name", "denied unusable-mapping"),
    *("denied unmapped-resource", "denied invalid-quantity", "denied requests-differ"),
    *("denied too-many-units", "denied mixed-modes", "denied env-not-allowed"),
    *("denied shared-device", "denied not-mutated", "errored unreadable-pod"),
    "rejected invalid-review",
}
"""How reviews can be answered, but for a mistake of accelbind's own."""


def differences(name: str, now: Iterator[str]) -> list[str]:
    """The first lines that differ, as a diff shows them."""
    golden = (FOLDER / name).read_text().splitlines()
    lines = []
    for number, (before, after) in enumerate(zip_longest(golden, now), 1):
        if before != after:
            lines += [f"{name}:{number}", f"- {before}", f"+ {after}"]
    return lines[: 3 * SHOWN]


@pytest.mark.parametrize("name", FILES)
def test_it_is_as_the_golden_file_says(name: str) -> None:
    assert differences(name, FILES[name]()) == [], "make golden, and a line in CHANGELOG"


@pytest.mark.parametrize("name", FROM_SHARED)
def test_it_is_as_the_golden_file_of_shared_material_says(name: str) -> None:
    require_shared("hardware")
    require_shared("recorded")
    assert differences(name, FROM_SHARED[name]()) == [], "make golden, and a line in CHANGELOG"


def golden_reviews() -> list[dict[str, object]]:
    return [json.loads(line) for line in (FOLDER / "reviews.jsonl").read_text().splitlines()]


def test_the_generated_reviews_are_answered_in_every_way_that_there_is() -> None:
    found = golden_reviews()
    assert len(found) == len(list(reviews()))
    ways = {
        answer["counted"] for each in found for answer in each.values() if isinstance(answer, dict)
    }
    assert ways == REASONS
    patched = [each for each in found if "/mutate again" in each]
    assert len(patched) > len(found) / 4


def test_every_answer_echoes_the_uid() -> None:
    webhook = adapter.Webhook(mappings(), DOMAINS)
    for review in reviews():
        status, answer, _ = webhook.answer("/mutate", review.body)
        if status == 200:
            sent = json.loads(review.body.decode("utf-8-sig", errors="replace"))
            assert json.loads(answer)["response"]["uid"] == sent["request"]["uid"]
        else:
            assert read_answer(status, answer)["kind"] == "Status"
