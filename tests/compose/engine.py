"""A Docker engine of a test's own, and a base image made of Debian's packages alone."""

import contextlib
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
PACKAGES = "python3,python3-venv,ca-certificates"
TRUST = Path("etc/ssl/certs/ca-certificates.crt")
USUAL = "unix:///var/run/docker.sock"
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
EMPTY = """*{table}
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
{more}COMMIT
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """How to talk to it.

    Args:
        host: DOCKER_HOST.
        folder: for whatever a test needs beside it.
    """

    host: str
    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Ours, for its clients."""
        return {**os.environ, "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}

    def run(self, *command: str | Path, seconds: float = 120, code: int | None = 0) -> str:
        """Runs a command for it; fails where its exit code isn't `code`.

        Returns:
            What it printed, on both streams.
        """
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


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """The engine that DOCKER_HOST names, or the usual one, or one that ends with the test."""
    require("docker")
    usual = Engine(os.environ.get("DOCKER_HOST", USUAL), folder)
    if "DOCKER_HOST" in os.environ or _answers(usual):
        yield usual
        return
    dockerd = require("dockerd")
    if os.geteuid() != 0:
        pytest.skip("a Docker engine is started by root only; DOCKER_HOST names one that runs")
    made = Engine(f"unix://{folder}/engine.sock", folder)
    with _network_as_it_was(), (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            [
                dockerd,
                f"--host={made.host}",
                f"--data-root={folder}/data",
                f"--exec-root={folder}/run",
                f"--pidfile={folder}/engine.pid",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _await(made, process)
            yield made
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            _unmount_below(folder)


def _unmount_below(folder: Path) -> None:
    """Takes away what an engine leaves mounted: its name for the host's network, among others."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted((each for each in points if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run([require("umount"), "--lazy", point], check=True)


def _await(made: Engine, process: subprocess.Popen[bytes]) -> None:
    def look() -> bool:
        if process.poll() is not None:
            tail = (made.folder / "engine.log").read_text(errors="replace")[-3000:]
            pytest.fail(f"dockerd ended with {process.returncode}:\n{tail}")
        return _answers(made)

    eventually(look, timeout=60, interval=0.2, what="the Docker engine")


def _answers(made: Engine) -> bool:
    return made.run("docker", "version", "--format", "{{.Server.Version}}", code=None)[:1].isdigit()


@contextlib.contextmanager
def _network_as_it_was() -> Iterator[None]:
    """Takes back what an engine leaves of its own accord: rules, a bridge, forwarding."""
    save, restore, ip = require("iptables-save"), require("iptables-restore"), require("ip")
    forwarding = FORWARD.read_text()
    before = subprocess.run([save], capture_output=True, text=True, check=True).stdout
    try:
        yield
    finally:
        rules = before
        for table, more in (
            ("filter", ":FORWARD ACCEPT [0:0]\n"),
            ("nat", ":PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n"),
        ):
            if f"*{table}" not in rules:
                rules += EMPTY.format(table=table, more=more)
        subprocess.run([restore], input=rules, text=True, check=True)
        subprocess.run([ip, "link", "delete", "docker0"], capture_output=True, check=False)
        FORWARD.write_text(forwarding)


def base_image(made: Engine) -> str:
    """The image that BASE names, or one made of Debian's packages, which trusts whom we trust."""
    if given := os.environ.get("BASE"):
        return given
    debootstrap, root = require("debootstrap"), made.folder / "base"
    made.run(*(debootstrap, "--variant=minbase", f"--include={PACKAGES}", SUITE, root), seconds=400)
    for archive in (root / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    if (Path("/") / TRUST).exists():
        shutil.copyfile(Path("/") / TRUST, root / TRUST)
    archive = made.folder / "base.tar"
    made.run("tar", "-C", root, "-cf", archive, ".")
    made.run("docker", "import", archive, BASE)
    shutil.rmtree(root)
    archive.unlink()
    return BASE
