import json

import pytest

from tests.webhook.asgi import Bench
from webhook import selfcheck
from webhook.selfcheck import check_ourselves


def test_other_methods_are_a_405_that_names_the_right_one() -> None:
    status, headers, answer = Bench().ask("/mutate", method="GET")
    assert (status, headers["allow"]) == (405, "POST")
    assert json.loads(answer)["reason"] == "MethodNotAllowed"


def test_a_review_of_our_own_that_is_answered_otherwise_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert check_ourselves() == ""
    monkeypatch.setattr(selfcheck, "_RESOURCE", "fpga.intel.com/other")
    assert check_ourselves() == "a review of our own was answered wrongly (None)"
