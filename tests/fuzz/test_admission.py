"""Bent AdmissionReviews against the application; `make soak` sends 100 000 of them."""

import base64
import copy
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.services.building import function, index
from tests.support import soaking
from tests.webhook.asgi import Bench
from tests.webhook.reviews import AFU, INTERFACE, LOGICAL, NAME, RESOURCE, body, pod

EXAMPLES = 100_000 if soaking() else 300
MAX_BODY = 64 * 1024

KEYS = [
    *("limits", "requests", "resources", "env", "name", "value", "valueFrom", "initContainers"),
    *("containers", "restartPolicy", "annotations", "metadata", "spec", "object", "namespace"),
    *("operation", "subResource", "ephemeralContainers", "resourceClaims", "~1/~0", "uid"),
    *(LOGICAL, RESOURCE, "fpga.intel.com/", "fpga.intel.com/" + "x" * 300, "\u2028\x00\ud800"),
]
VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**64, 1e308, "", [], {}, [None], {"name": 7}, "NUMBER"),
    *("1", "0", "-1", "64", "65", "3000000", "1Ki", "1e999999999", "1m", "9" * 4000, "1Ei", "٣"),
    *("FPGA_REGION_1", "FPGA_AFU_1", INTERFACE, AFU, "$(FPGA_AFU_1)", '"', "CREATE", "Always"),
    *("\ud800", "\x00", "\U0001f600", "a" * 20_000, "accelbind.dev/requested"),
    '{"c0":{"fpga.intel.com/arria10-nlb0":1}}',
]
NUMBERS = ["1e999", "9" * 400, "-0", "0.1e-400", "[" * 1000 + "]" * 1000, '{"a":' * 100_000]
"""What no writer of JSON would write in the place of a value."""


def reviews() -> Iterator[Any]:
    everything = pod("fpga.intel.com/region-nlb0", "2")
    everything["metadata"]["annotations"] = {"accelbind.dev/requested": '{"c0":{}}', "a/b": "c"}
    first = everything["spec"]["containers"][0]
    first["env"] = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "FPGA_REGION_1", "value": INTERFACE},
        {"name": "FPGA_AFU_1", "value": AFU},
    ]
    everything["spec"]["initContainers"] = [
        {**first, "name": "init", "env": []},
        pod()["spec"]["containers"][0] | {"name": "sidecar", "restartPolicy": "Always"},
    ]
    for each in (pod(), pod(RESOURCE), everything, everything):
        yield json.loads(body(each))
    yield json.loads(body(pod("cpu"), operation="UPDATE", subResource="status"))


REVIEWS = [*reviews()]


def holders(value: Any) -> Iterator[Any]:
    """The objects and lists within a value."""
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from holders(each)


@st.composite
def bent(draw: st.DrawFn) -> bytes:
    """A review with some entries replaced, removed or repeated, and perhaps bent bytes."""
    review = copy.deepcopy(draw(st.sampled_from(REVIEWS)))
    for _ in range(draw(st.integers(0, 3))):
        holder = draw(st.sampled_from([each for each in holders(review) if each]))
        value = copy.deepcopy(draw(st.sampled_from([*VALUES, *holders(review)])))
        if isinstance(holder, list):
            holder[:] = draw(st.sampled_from([[value], holder * 20, [*holder, value]]))
            continue
        key = draw(st.sampled_from([*holder]))
        match draw(st.sampled_from(["replace", "remove", "rename"])):
            case "replace":
                holder[key] = value
            case "remove":
                del holder[key]
            case "rename":
                holder[draw(st.sampled_from(KEYS))] = holder.pop(key)
    text = json.dumps(review, ensure_ascii=draw(st.booleans()))
    text = text.replace('"NUMBER"', draw(st.sampled_from(NUMBERS)))
    if draw(st.booleans()):  # a key twice
        text = text.replace('"limits":', '"limits":{"a":"1"},"limits":', 1)
    content = text.encode("utf-8", "surrogatepass")
    at, odd = draw(st.integers(0, len(content))), draw(st.binary(max_size=4))
    ways = [content] * 6 + [content[:at] + odd + content[at + 1 :], content[:at], content * 2]
    ways += [text.encode("utf-16", "surrogatepass"), b"\xef\xbb\xbf" + content]
    return draw(st.sampled_from([*ways, gzip.compress(content, 1), b" " * MAX_BODY + content]))


BENCH = Bench(max_body=MAX_BODY)
BENCH.mappings.index = index(function(NAME, "af"), function("region-nlb0", "region"))


def echoes(sent: bytes, uid: object) -> bool:
    """Whether a uid is that of a body; it stands in a body that another reader can't read."""
    try:
        text = sent.decode("utf-8", "replace").removeprefix("\ufeff")
        return bool(json.loads(text)["request"]["uid"] == uid)
    except (ValueError, TypeError, LookupError, RecursionError):
        return isinstance(uid, str) and uid.encode() in sent


@pytest.mark.timeout(0)
@given(st.sampled_from(["/mutate", "/pods", "/validate"]), bent())
@settings(max_examples=EXAMPLES)
def test_every_bent_review_gets_a_usable_answer(path: str, sent: bytes) -> None:
    with capture_logs():
        status, _, answer = BENCH.ask(path, sent)
    if 400 <= status < 500:
        event("refused")
        assert json.loads(answer)["kind"] == "Status"
        return
    assert status == 200, answer[:200]
    review = json.loads(answer)
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    response = review["response"]
    assert echoes(sent, response["uid"]), response["uid"]
    if response["allowed"] is True:
        patch = json.loads(base64.b64decode(response.get("patch", "W10="), validate=True))
        event("patched" if patch else "allowed")
        return
    event("denied")
    assert response["allowed"] is False
    assert response["status"]["code"] in {400, 403}, "an internal error"
    assert response["status"]["message"]
