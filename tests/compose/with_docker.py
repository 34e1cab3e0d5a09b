"""The images and the compose file with a real Docker engine: `make test-compose` runs this.

It is no part of `make test`: it takes minutes, and what it needs it says. DOCKER_HOST names another
engine than the usual one; BASE an image that is there or can be pulled, in the place of one made of
Debian's packages; BASE_ARCHIVE a file that keeps the latter for the next time.
"""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.compose.engine import BASE, Engine, base_image, composes, unmet
from tests.compose.test_files import QUICKSTART, typed
from tests.support import REPOSITORY, eventually, require

pytestmark = pytest.mark.timeout(2400)

TARGETS = ("plugin", "webhook", "certs", "hook-installer")
TAG = "test"
PROJECT = "accelbindtest"
OURS = ("--filter", f"label=com.docker.compose.project={PROJECT}")
TOLD = {"VERSION": "1.2.3", "REVISION": "0123abc", "SOURCE": "https://git.example/accelbind"}
"""Build arguments that come back as labels."""

LARGEST = 100_000_000
"""Bytes that the webhook's image may have over its base."""

TRIED = "8 of 8 pods behaved as expected; everything keeps running"
"""The end of what the service `try` prints."""
RUNNING = {
    "api-server",
    "webhook",
    "kubelet-af",
    "kubelet-region",
    "driver-region",
    "plugin-af",
    "plugin-region",
}


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp"))
    try:
        engine = Engine(folder)
        if problem := unmet(engine):
            pytest.exit(f"make test-compose can't run: {problem}", returncode=1)
        yield engine
    finally:
        subprocess.run([require("rm"), "-rf", folder], check=True)


@pytest.fixture(scope="module")
def base(docker: Engine) -> Iterator[str]:
    made = base_image(docker)
    yield made
    if made == BASE:
        docker.run("docker", "image", "rm", made)


@pytest.fixture(scope="module")
def images(docker: Engine, base: str) -> Iterator[dict[str, str]]:
    """Target → the image that was built of it."""
    built = {target: f"accelbind-{target}:{TAG}" for target in TARGETS}

    def build(*targets: str) -> None:
        for target in targets:
            docker.run(
                *("docker", "build", "--network=host", "--build-arg", f"BASE={base}"),
                *(
                    word
                    for name, value in TOLD.items()
                    for word in ("--build-arg", f"{name}={value}")
                ),
                *("--target", target, "--tag", built[target], "."),
                seconds=900,
            )

    build("plugin")
    with ThreadPoolExecutor(2) as pool:  # what they are made of is there now
        for done in [pool.submit(build, "hook-installer"), pool.submit(build, "webhook", "certs")]:
            done.result()
    yield built
    docker.run("docker", "image", "rm", *built.values())


def inspect(docker: Engine, image: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(docker.run("docker", "image", "inspect", image))[0]
    return found


def test_images_are_small(
    docker: Engine, base: str, images: dict[str, str], figure: Callable[[str], None]
) -> None:
    sizes = {name: inspect(docker, image)["Size"] for name, image in images.items()}
    below = inspect(docker, base)["Size"]
    assert isinstance(below, int)
    figure(f"base: {below / 1e6:.0f} MB")
    for name, size in sizes.items():
        assert isinstance(size, int)
        figure(f"{name}: {size / 1e6:.0f} MB, {(size - below) / 1e6:.0f} MB over its base")
        if name == "webhook":
            assert size - below <= LARGEST


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_on_a_read_only_root_without_tools(
    docker: Engine, images: dict[str, str], target: str
) -> None:
    config = inspect(docker, images[target])["Config"]
    assert isinstance(config, dict)
    assert config["User"] == "65532:65532"
    for name, value in TOLD.items():
        assert config["Labels"][f"org.opencontainers.image.{name.lower()}"] == value
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["Labels"]["org.opencontainers.image.title"] == f"accelbind-{target}"
    assert config["Healthcheck"]["Test"][0] == ("NONE" if target == "hook-installer" else "CMD")
    look = (
        "for tool in cc gcc ld as make pip pip3 uv; do command -v $tool; done;"
        " for room in pip ensurepip setuptools; do"
        '  python3 -c "import $room" 2>/dev/null && echo $room; done;'
        " touch /x 2>/dev/null && echo writable; id -u"
    )
    hardened = ("--read-only", "--cap-drop=ALL", "--network=none")
    said = docker.run(
        *("docker", "run", "--rm", *hardened, "--entrypoint", "sh", images[target], "-c", look)
    )
    assert said.split() == ["65532"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_lists_what_is_in_it(docker: Engine, images: dict[str, str], target: str) -> None:
    config = inspect(docker, images[target])["Config"]
    assert isinstance(config, dict)
    path = config["Labels"]["dev.accelbind.sbom"]
    listed = json.loads(
        docker.run("docker", "run", "--rm", "--entrypoint", "cat", images[target], path)
    )
    purls = {each["purl"] for each in listed["components"]}
    assert listed["metadata"]["component"]["name"] == "accelbind"
    assert any(each.startswith("pkg:deb/debian/libc6@") for each in purls)
    installed = docker.run(
        *("docker", "run", "--rm", "--entrypoint", "sh", images[target], "-c"),
        "ls -d /opt/accelbind/lib/python3*/site-packages/*.dist-info 2>/dev/null || true",
    )
    names = {
        re.sub(r"[-_.]+", "-", match).lower()
        for match in re.findall(r"site-packages/(.+?)-[^-/]+\.dist-info", installed)
    }
    named = {each.partition("/")[2].partition("@")[0] for each in purls if "pypi" in each}
    assert named == ({"pyinstaller"} if target == "hook-installer" else names - {"accelbind"})
    assert all(each.get("licenses") for each in listed["components"] if "pypi" in each["purl"])
    libraries = {each["name"] for each in listed["components"]}
    assert not libraries & {"binutils", "make", "python3-pip", "python3-pip-whl"}
    assert ("grpcio" in named) is (target == "plugin")


def test_the_installer_puts_a_hook_onto_the_host_that_runs(
    docker: Engine, images: dict[str, str]
) -> None:
    host = docker.folder / "opt"
    host.mkdir()
    command = ("docker", "run", "--rm", "--user=0", "--read-only", f"--volume={host}:/host")
    for _ in range(2):
        assert docker.run(*command, images["hook-installer"]) == "/host/hook: installed\n"
    done = subprocess.run(
        [host / "hook" / "accelbind-hook"], input="{}", text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "usage: accelbind-hook SOCKET REGION" in done.stderr
    guide = (REPOSITORY / "docs/programming.md").read_text()
    (stated,) = re.findall(r"glibc (\d+)\.(\d+) or newer", guide)
    assert newest_glibc(host / "hook") <= tuple(map(int, stated))


def newest_glibc(folder: Path) -> tuple[int, int]:
    texts = (path.read_bytes() for path in folder.rglob("*") if path.is_file())
    found = [re.findall(rb"GLIBC_(\d+)\.(\d+)", text) for text in texts if text[:4] == b"\x7fELF"]
    return max((int(major), int(minor)) for each in found for major, minor in each)


class Suite:
    def __init__(self, docker: Engine, base: str, command: tuple[str, ...]) -> None:
        self._docker = docker
        self.tag = f"{TAG}-compose"
        self._compose = (
            *("env", f"ACCELBIND_TAG={self.tag}", f"ACCELBIND_BASE={base}"),
            *(*command, f"--project-name={PROJECT}"),
        )

    def compose(self, *command: str, seconds: float = 600, code: int | None = 0) -> str:
        return self._docker.run(*self._compose, *command, seconds=seconds, code=code)

    def logs(self, *services: str) -> str:
        """What they have written, without starting a compose, which takes a second of its own."""
        said = ""
        for service in services:
            only = ("--filter", f"label=com.docker.compose.service={service}")
            for each in self._docker.run("docker", "ps", "--all", "--quiet", *OURS, *only).split():
                said += self._docker.run("docker", "logs", each)
        return said

    def states(self) -> dict[str, str]:
        """Service → its state, `healthy` where it has a health check that says so."""
        ids = self._docker.run("docker", "ps", "--all", "--quiet", *OURS).split()
        found = json.loads(self._docker.run("docker", "inspect", *ids)) if ids else []
        return {
            one["Config"]["Labels"]["com.docker.compose.service"]: _state(one["State"])
            for one in found
        }


def _state(state: dict[str, Any]) -> str:
    if state["Status"] != "running":
        return f"{state['Status']} {state['ExitCode']}"
    return str(state.get("Health", state)["Status"])


@pytest.mark.parametrize("version", composes())
def test_the_suite_comes_up_healthy_tries_the_pods_and_goes_down(
    docker: Engine, base: str, images: dict[str, str], figure: Callable[[str], None], version: str
) -> None:
    assert set(images) == set(TARGETS)
    suite, began = Suite(docker, base, composes()[version]), time.monotonic()
    up, again, watch, inside, down = typed(QUICKSTART)
    try:
        suite.compose(*up, "--build", "--detach")

        def tried() -> bool:
            assert suite.states().get("try", "").startswith("exited")
            return True

        eventually(tried, timeout=600, interval=0.5, what="the pods to be tried")
        shown = suite.logs("try")
        assert TRIED in shown, shown[-4000:]
        states = suite.states()
        assert {each: states[each] for each in RUNNING} == dict.fromkeys(RUNNING, "healthy")
        assert {states[each] for each in ("cards", "certs", "try")} == {"exited 0"}
        figure(f"up, and the pods through: {time.monotonic() - began:.0f} s")
        assert TRIED in suite.compose(*again)
        assert "intel-fpga-port.0" in suite.compose("exec", "-T", *inside[1:])
        suite.compose(*watch, "--detach")
        _see_what_is_watched(suite)
        _end_quietly(suite)
    finally:
        suite.compose(*down, "--timeout=20")
        built = (f"accelbind-{target}:{suite.tag}" for target in TARGETS[:3])
        docker.run("docker", "image", "rm", "--force", *built, code=None)
    for kind in ("container", "volume", "network"):
        every = ("--all",) if kind == "container" else ()
        assert docker.run("docker", kind, "ls", *every, "--quiet", *OURS) == ""


def _see_what_is_watched(suite: Suite) -> None:
    def seen() -> bool:
        told = suite.logs("watch-af", "watch-region")
        assert re.search(r"intel-fpga-port\.\d .*Healthy +default/function", told), told
        assert re.search(r"dfl-fme\.\d .*Healthy +default/region", told), told
        return True

    eventually(seen, timeout=120, interval=0.5, what="the holders in accelbind devices --watch")


def _end_quietly(suite: Suite) -> None:
    suite.compose("--profile=watch", "stop", "--timeout=60")
    states = suite.states()
    ended = {each: state for each, state in states.items() if each in RUNNING}
    assert ended == dict.fromkeys(RUNNING, "exited 0")
    for service in ("webhook", "plugin-af", "plugin-region", "kubelet-af", "api-server"):
        said = suite.logs(service)
        assert "Traceback" not in said, said
