"""A Docker engine of a test's own, and a base image made of Debian's packages alone."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import REPOSITORY, eventually, require

BASE = "accelbind-test-base"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
"""A base as some are: with a pip of its own, which must not get into an image."""
TRUST = Path("/etc/ssl/certs/ca-certificates.crt")
USUAL = "unix:///var/run/docker.sock"
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
CGROUPS = Path("/sys/fs/cgroup")
IN_RUN = tuple(map(Path, ("/run/docker/plugins", "/run/docker", "/run/containerd/s")))
EMPTY = """*{table}
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
{more}COMMIT
"""
TABLES = {
    "filter": ":FORWARD ACCEPT [0:0]\n",
    "nat": ":PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n",
}

NEEDED = {"cap_sys_admin": 21, "cap_net_admin": 12}
"""Capabilities without which no engine starts, by their numbers (linux/capability.h)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How to talk to it."""

    host: str
    folder: Path
    own: bool = False
    """Whether it ends with the test, and all that is in it."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Ours, for its clients; BuildKit is used where somebody asks for it."""
        return {"DOCKER_BUILDKIT": "0", **os.environ, "DOCKER_HOST": self.host}

    def run(self, *command: str | Path, seconds: float = 120, code: int | None = 0) -> str:
        """What a command printed on both streams; fail where its exit code isn't `code`."""
        done = subprocess.run(
            [*map(str, command)],
            cwd=REPOSITORY,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        if code is not None and done.returncode != code:
            words = " ".join(map(str, command))
            pytest.fail(f"{words}: {done.returncode}\n{done.stdout[-6000:]}")
        return done.stdout


def usual(folder: Path) -> Engine | None:
    """The engine that DOCKER_HOST names, or the one at the usual place if it answers."""
    found = Engine(os.environ.get("DOCKER_HOST", USUAL), folder)
    return found if "DOCKER_HOST" in os.environ or _answers(found) else None


@functools.cache
def composes() -> Mapping[str, tuple[str, ...]]:
    """Version → command of each compose that is installed: 1.29 and v2 may both be."""
    found: dict[str, tuple[str, ...]] = {}
    for command in (("docker-compose",), ("docker", "compose")):
        if shutil.which(command[0]):
            asked = [*command, "version", "--short"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found.setdefault(done.stdout.strip().removeprefix("v"), command)
    return found


def unmet(*, running: bool) -> str:
    """What keeps this machine from running the tests, and what to do; empty if nothing does."""
    tools = ["docker"] if os.environ.get("BASE") else ["docker", "debootstrap"]
    if not running:
        tools += ["dockerd", "iptables-save", "ip", "setpriv"]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not composes():
        missing.append("docker-compose")
    said = [f"these programs are missing: {' '.join(missing)}"] if missing else []
    if os.geteuid() != 0 and not (running and os.environ.get("BASE")):
        said.append(
            "root alone may start a Docker engine and make the images' base; with an engine that"
            " runs already (DOCKER_HOST) and an image of Debian or Ubuntu that has Python"
            " (BASE=python:3.11-slim-bookworm) no root is needed"
        )
    return "; ".join(said)


def forbidden(status: str) -> str:
    """Why even root may start no engine here, of the text of /proc/self/status; empty if it may."""
    told = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    held = int(told.split()[1], 16)
    return ", ".join(name for name, number in NEEDED.items() if not held >> number & 1)


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """The engine that runs already, or one that ends with the test."""
    if there := usual(folder):
        yield there
        return
    made = Engine(f"unix://{folder}/engine.sock", folder, own=True)
    with _machine_as_it_was(folder.name), (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            _starting(made),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _await(made, process)
            yield made
        finally:
            _end(process)


def _starting(made: Engine) -> list[str]:
    """Its command line: whatever becomes of us, its processes and mounts end with it."""
    return [
        *(require("setpriv"), "--pdeathsig=KILL", require("unshare")),
        *("--mount", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"),
        *(require("dockerd"), f"--host={made.host}", f"--pidfile={made.folder}/engine.pid"),
        *(f"--data-root={made.folder}/data", f"--exec-root={made.folder}/run"),
        *("--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{made.folder.name}"),
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the engine itself, which is the one child of what was started, and wait for both."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with contextlib.suppress(OSError):
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGTERM)
    try:
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _await(made: Engine, process: subprocess.Popen[bytes]) -> None:
    def look() -> bool:
        if process.poll() is not None:
            tail = (made.folder / "engine.log").read_text(errors="replace")[-3000:]
            pytest.fail(f"dockerd ended with {process.returncode}:\n{tail}")
        return _answers(made)

    eventually(look, interval=0.2, what="the Docker engine")


def _answers(made: Engine) -> bool:
    asked = ("docker", "version", "--format", "{{.Server.Version}}")
    return shutil.which("docker") is not None and made.run(*asked, code=None)[:1].isdigit()


@contextlib.contextmanager
def _machine_as_it_was(cgroup: str) -> Iterator[None]:
    """Take back what an engine leaves of its own accord: rules, a bridge, forwarding, folders."""
    filters = [each for each in ("iptables", "ip6tables") if shutil.which(f"{each}-save")]
    before = {each: _rules(each) for each in filters}
    forwarding, there = FORWARD.read_text(), {each for each in IN_RUN if each.exists()}
    try:
        yield
    finally:
        for each, rules in before.items():
            _restore(each, rules)
        subprocess.run(
            [require("ip"), "link", "delete", "docker0"], capture_output=True, check=False
        )
        FORWARD.write_text(forwarding)
        for folder in [each for each in IN_RUN if each not in there]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        for folder in {*CGROUPS.glob(cgroup), *CGROUPS.glob(f"*/{cgroup}")}:
            for below in sorted(folder.rglob("*/"), reverse=True):
                below.rmdir()
            folder.rmdir()


def _rules(kind: str) -> str:
    told = subprocess.run([require(f"{kind}-save")], capture_output=True, text=True, check=True)
    return "".join(
        f"{line.partition(' [')[0] + ' [0:0]' if line.startswith(':') else line}\n"
        for line in told.stdout.splitlines()
        if not line.startswith("#")
    )


def _restore(kind: str, before: str) -> None:
    if _rules(kind) == before:
        return
    rules = before
    for table, more in TABLES.items():
        if f"*{table}" not in rules:
            rules += EMPTY.format(table=table, more=more)
    subprocess.run([require(f"{kind}-restore")], input=rules, text=True, check=True)


def base_image(made: Engine) -> str:
    """The image that BASE names, or one made of Debian's packages, which trusts whom we trust."""
    if given := os.environ.get("BASE"):
        return given
    archive = Path(os.environ.get("BASE_ARCHIVE") or made.folder / "base.tar")
    if not archive.exists():
        _debootstrap(made, archive)
    made.run("docker", "import", archive, BASE)
    return BASE


def _debootstrap(made: Engine, archive: Path) -> None:
    """Make it in memory: what is there for a moment needs no disk that dpkg would wait for."""
    root = made.folder / "base"
    root.mkdir()
    made.run(
        *(require("unshare"), "--mount", "sh", "-euc"),
        'mount -t tmpfs -o mode=0755 base "$1";'
        ' debootstrap --variant=minbase --include="$4" "$3" "$1";'
        ' rm -f "$1"/var/cache/apt/archives/*.deb;'
        ' if [ -e "$5" ]; then cp "$5" "$1$5"; fi;'
        ' tar -C "$1" -cf "$2.part" .; mv "$2.part" "$2"',
        *("sh", root, archive, SUITE, PACKAGES, TRUST),
        seconds=900,
    )
    root.rmdir()
