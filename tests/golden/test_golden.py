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


def test_every_answer_echoes_the_uid() -> None:
    webhook = adapter.Webhook(mappings(), DOMAINS)
    for review in reviews():
        status, answer, _ = webhook.answer("/mutate", review.body)
        if status == 200:
            sent = json.loads(review.body.decode("utf-8-sig", errors="replace"))
            assert json.loads(answer)["response"]["uid"] == sent["request"]["uid"]
        else:
            assert read_answer(status, answer)["kind"] == "Status"
