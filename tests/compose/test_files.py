"""What can be said of Dockerfile and docker-compose.yml without an engine."""

import re
import shlex
from typing import Any

import pytest
import yaml

from tests.docs import blocks
from tests.support import REPOSITORY

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
QUICKSTART = "docs/quickstart.md"
VERBS = {"up", "run", "exec", "down"}


def instructions() -> list[str]:
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [line for line in text.splitlines() if line.strip()]


def test_the_base_is_all_that_is_pulled() -> None:
    stages = {"$BASE"}
    for line in instructions():
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            assert match[1] in stages
            stages.add(match[2])
        elif line.startswith("FROM"):
            pytest.fail(f"{line}: a stage without a name")
        elif match := re.search(r"--from=(\S+)", line):
            assert match[1] in stages
    assert {"webhook", "plugin", "certs", "hook-installer"} < stages
    assert "# syntax" not in DOCKERFILE
    assert "latest" not in DOCKERFILE


def test_packages_are_installed_by_hash() -> None:
    installs = [
        command
        for line in instructions()
        for command in line.split("&&")
        if re.search(r"bin/pip .*\binstall\b", command)
    ]
    assert len(installs) == 4
    for command in installs:
        assert "--require-hashes" in command or "--no-deps wheels/*.whl" in " ".join(
            command.split()
        )


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_powers(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "user", "ports", "network_mode", "pid", "cap_add"}


def typed(*pages: str) -> list[list[str]]:
    """What pages have people type, without `docker compose`."""
    lines = [each.plain for page in pages for each in blocks.commands(page)]
    return [shlex.split(line)[2:] for line in lines if line.startswith("docker compose ")]


def test_make_test_compose_runs_what_the_quickstart_has_people_type() -> None:
    """In this order: all of it, the pods once more, with a view, inside, and away with it."""
    assert [[word for word in words if word in VERBS] for words in typed(QUICKSTART)] == [
        [verb] for verb in ("up", "run", "up", "exec", "down")
    ]


def test_documented_commands_name_services_profiles_and_folders_that_exist() -> None:
    profiles = {name for each in SERVICES.values() for name in each.get("profiles", ())}
    for words in typed(*blocks.pages()):
        if "--profile" in words:
            assert words[words.index("--profile") + 1] in profiles
        if words[0] in ("run", "exec"):
            (name, *rest) = [word for word in words[1:] if not word.startswith("--")]
            own = [word for each in SERVICES[name]["command"] for word in each.split("=")]
            folders = [word for word in rest if word.startswith("/")]
            assert set(folders) <= set(own), "the folders of the service's process"
