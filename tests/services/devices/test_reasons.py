"""The table of reason codes against the codes that are made anywhere in the code."""

import re

from services.devices.reasons import OTHERWISE, REASONS, advised, remedy
from services.process.problem import Problem
from tests.support import REPOSITORY

TABLE = REPOSITORY / "services/devices/reasons.py"
COMPOSED = re.compile(r"(afu|interface)-id-.*|.*-unreadable")


def test_the_table_has_the_codes_that_are_made_and_no_others() -> None:
    sources = "".join(
        path.read_text()
        for room in ("services", "plugin", "accelbind")
        for path in (REPOSITORY / room).rglob("*.py")
        if path != TABLE
    )
    constants = re.findall(r'^([A-Z_]+): Final = "([a-z0-9-]+)"$', sources, re.MULTILINE)
    by_name = set(re.findall(r"\bProblem\(\s*([A-Z_]+)\b", sources))
    made = {code for name, code in constants if name in by_name}
    made |= set(re.findall(r'\bProblem\(\s*"([a-z0-9-]+)"', sources))
    assert {"card-hung", "gone"} <= made
    assert made <= REASONS.keys()
    whole = {each for each in REASONS if not COMPOSED.fullmatch(each)}
    assert {each for each in whole if f'"{each}"' not in sources} == set()


def test_a_problem_has_a_remedy_whatever_its_code() -> None:
    assert remedy("no-sysfs") == "name the host's root with --root"
    assert remedy("unheard-of") == OTHERWISE
    problem = Problem("no-sysfs", "/sys is not there")
    assert advised(problem) == "/sys is not there: name the host's root with --root"
