"""Bent AdmissionReviews against the application; `make soak` sends 100 000 of them."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from services.mappings.index import MappingIndex
from services.mappings.kinds import ACCELERATOR_FUNCTION
from tests.fuzz.mutations import make_case
from tests.services.building import function, index
from tests.support import soak, soaking
from tests.webhook.asgi import Bench
from tests.webhook.reviews import NAME

NUMBER = 100_000 if soaking() else 150
MAX_BODY = 3 * 1024 * 1024
"""Bytes that the webhook takes; the longest cases are longer."""
SHOWN = 10
"""How many failures are shown."""


@dataclass
class Known:
    """Two mappings that stay."""

    index: MappingIndex
    loaded: bool = True


def judge(sent: bytes, status: int, answer: bytes) -> str:
    """What an answer says: a review that echoes the uid, or a 4xx with a reason."""
    if 400 <= status < 500:
        assert json.loads(answer)["kind"] == "Status"
        return str(status)
    assert status == 200, answer[:200]
    review = json.loads(answer)
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    response = review["response"]
    assert echoes(sent, response["uid"]), response["uid"]
    if response["allowed"] is True:
        patch = json.loads(base64.b64decode(response.get("patch", "W10="), validate=True))
        return "patched" if patch else "allowed"
    assert response["allowed"] is False
    assert response["status"]["code"] in {400, 403}, "an internal error"
    assert response["status"]["message"]
    return "denied"


def echoes(body: bytes, uid: object) -> bool:
    """Whether a uid is that of a body, as another reader of JSON understands it.

    Where that one understands nothing (msgspec passes over what it doesn't need, bad text
    included) or isn't deep enough, the uid must at least stand in the body.
    """
    try:
        text = body.decode("utf-8", "replace").removeprefix("\ufeff")
        return bool(json.loads(text)["request"]["uid"] == uid)
    except (ValueError, TypeError, LookupError, RecursionError):
        return isinstance(uid, str) and uid.encode() in body


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_bent_review_gets_a_usable_answer(figure: Callable[[str], None]) -> None:
    known = Known(index(function(NAME, "af"), function("region-nlb0", "region")))
    assert known.index.counts[ACCELERATOR_FUNCTION] == 2
    bench = Bench(mappings=known, max_body=MAX_BODY)
    seed, outcomes, failures = soak(short=0, full=0).seed, Counter[str](), list[str]()
    for number in range(NUMBER):
        path, sent = make_case(seed, number)
        try:
            with capture_logs():
                status, _, answer = bench.ask(path, sent)
            outcomes[judge(sent, status, answer)] += 1
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            failures.append(f"make_case({seed}, {number}): {error!r:.500}")
    figure(f"seed {seed}: {dict(outcomes)}")
    assert failures[:SHOWN] == []
    assert outcomes["patched"] > NUMBER / 100
