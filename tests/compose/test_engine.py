"""What `make test-compose` says where it can't run, and what it takes for an engine of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose import engine
from tests.support import ENGINES_ARE_FORBIDDEN, REPOSITORY

ROOT = "CapInh:\t0000000000000000\nCapEff:\t{:016x}\nCapBnd:\t000001ffffffffff\n"
ALL = (1 << 41) - 1


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one folder of the path, empty; nothing in the environment tells of Docker."""
    for name in ("BASE", "DOCKER_HOST", "COMPOSE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    engine.composes.cache_clear()
    yield tmp_path
    engine.composes.cache_clear()


def put(folder: Path, *names: str, says: str = "") -> None:
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{says}\n")
        (folder / name).chmod(0o755)


def become(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: number)


def test_what_is_missing_is_named_as_debian_names_it(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(0, monkeypatch)
    assert engine.unmet(running=False).endswith(
        "missing: debootstrap docker-compose docker.io iproute2 iptables util-linux"
    )
    put(tools, "docker", says='test "$1" = version')
    put(tools, "debootstrap")
    assert engine.unmet(running=True).endswith("missing: docker-compose")
    put(tools, "docker-compose", says="echo 1.29.2")
    engine.composes.cache_clear()
    assert engine.unmet(running=True) == ""
    assert engine.unmet(running=False).endswith("missing: docker.io iproute2 iptables util-linux")


def test_who_is_not_root_learns_what_to_do(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    become(1000, monkeypatch)
    put(tools, "docker", says='test "$1" = compose && echo v2.26.1')
    put(tools, "dockerd", "debootstrap", "iptables-save", "ip", "setpriv")
    said = engine.unmet(running=False)
    assert "DOCKER_HOST" in said
    assert "BASE=" in said
    monkeypatch.setenv("BASE", "python:3.11-slim-bookworm")
    assert engine.unmet(running=True) == ""
    assert "root alone" in engine.unmet(running=False)


def test_each_compose_is_found_once(tools: Path) -> None:
    put(tools, "docker-compose", says="echo 1.29.2")
    put(tools, "docker", says="echo v2.26.1")
    assert engine.composes() == {"1.29.2": ("docker-compose",), "2.26.1": ("docker", "compose")}
    engine.composes.cache_clear()
    put(tools, "docker-compose", says="echo 2.26.1")
    assert engine.composes() == {"2.26.1": ("docker-compose",)}
    engine.composes.cache_clear()
    put(tools, "docker-compose", "docker", says="exit 1")
    assert engine.composes() == {}


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


def test_rules_are_compared_without_their_counters(tools: Path) -> None:
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
