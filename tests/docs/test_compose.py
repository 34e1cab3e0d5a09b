"""Documented commands for docker-compose.yml name services, profiles and folders that exist."""

import shlex

import yaml

from tests.docs.blocks import commands, pages
from tests.support import REPOSITORY

SERVICES = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]


def composed() -> list[list[str]]:
    return [
        shlex.split(one.plain)[2:]
        for page in pages()
        for one in commands(page)
        if one.plain.startswith("docker compose ")
    ]


def test_the_services_and_profiles_that_are_named_exist() -> None:
    profiles = {name for each in SERVICES.values() for name in each.get("profiles", ())}
    for words in composed():
        if "--profile" in words:
            assert words[words.index("--profile") + 1] in profiles
        if words[0] in ("run", "exec"):
            (service, *_) = [word for word in words[1:] if not word.startswith("--")]
            assert service in SERVICES


def test_what_is_run_in_a_service_has_its_folders() -> None:
    """`accelbind devices` gets the folders of the service's process."""
    (words,) = [words for words in composed() if words[0] == "exec"]
    service = SERVICES[words[1]]
    assert words[2:4] == ["accelbind", "devices"]
    flags = dict(zip(words[4::2], words[5::2], strict=True))
    own = dict(word.partition("=")[::2] for word in service["command"] if "=" in word)
    assert flags == {name: own[name] for name in flags}
