"""Which machines may start a Docker engine, and what a test's own engine leaves of the machine."""

from pathlib import Path

import pytest

from tests.compose import engine
from tests.support import ENGINES_ARE_FORBIDDEN, REPOSITORY

ROOT = "CapInh:\t0000000000000000\nCapEff:\t{:016x}\nCapBnd:\t000001ffffffffff\n"
ALL = (1 << 41) - 1


def put(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("held", "lacking"),
    [
        (ALL, ""),
        (ALL & ~(1 << 21), "cap_sys_admin"),
        (0xA80425FB, "cap_sys_admin, cap_net_admin"),  # what an engine gives a container
        (0, "cap_sys_admin, cap_net_admin"),
    ],
)
def test_a_machine_that_forbids_engines_is_told_from_one_that_lacks_packages(
    held: int, lacking: str
) -> None:
    assert engine.forbidden(ROOT.format(held)) == lacking


def test_the_gate_knows_the_words_for_a_machine_that_forbids_engines() -> None:
    assert ENGINES_ARE_FORBIDDEN in (REPOSITORY / ".ci" / "run").read_text()


def test_rules_are_compared_without_their_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tools = tmp_path
    told = "# of now\\n*filter\\n:INPUT ACCEPT [{0}:7]\\n-A INPUT -i lo -j ACCEPT\\nCOMMIT"
    rules = []
    for count in (1, 2):
        put(tools, "iptables-save", says=f"printf '{told.format(count)}\\n'")
        rules.append(engine._rules("iptables"))
    assert rules[0] == rules[1]
    assert ":INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n" in rules[0]
    put(tools, "iptables-restore", says=f'while read -r line; do echo "$line"; done >{tools}/back')
    engine._restore("iptables", rules[0])
    assert not (tools / "back").exists()
    engine._restore("iptables", rules[0].replace("lo -j ACCEPT", "lo -j DROP"))
    restored = (tools / "back").read_text()
    assert "-A INPUT -i lo -j DROP\nCOMMIT\n" in restored
    assert "*nat\n:INPUT ACCEPT [0:0]\n" in restored
