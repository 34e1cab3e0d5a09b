"""The programs that images are built with, and those in them that aren't accelbind's own."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from simulator.demo import cluster
from simulator.demo.try_it import main as try_it
from tests.support import REPOSITORY
from tools.image import install_hook, sbom
from tools.image.pick_lock import pick

LOCK = """\
app==1.0 \\
    --hash=sha256:aa
    # via -r in
helper==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via
    #   app
    #   other
deep-one==3.0 \\
    --hash=sha256:dd
    # via helper
other==4.0 \\
    --hash=sha256:ee
"""


def test_a_lock_gives_packages_with_all_that_they_need() -> None:
    assert pick(LOCK, ["app"]).splitlines() == [
        "app==1.0 \\",
        "    --hash=sha256:aa",
        "helper==2.0 ; sys_platform == 'linux' \\",
        "    --hash=sha256:bb \\",
        "    --hash=sha256:cc",
        "deep-one==3.0 \\",
        "    --hash=sha256:dd",
    ]
    names = [
        line.partition("==")[0] for line in pick(LOCK, ["other"]).splitlines() if line[0] != " "
    ]
    assert names == ["helper", "deep-one", "other"]
    with pytest.raises(KeyError, match="app2"):
        pick(LOCK, ["app", "app2"])


@pytest.mark.parametrize(
    ("asked", "needs"), [("hatchling", "packaging"), ("pyinstaller", "altgraph")]
)
def test_our_own_lock_has_what_the_stages_ask_for(asked: str, needs: str) -> None:
    picked = pick((REPOSITORY / "requirements-dev.lock").read_text(), [asked])
    assert f"{asked}==" in picked
    assert f"{needs}==" in picked
    assert "grpcio" not in picked
    assert f" {asked} >" in (REPOSITORY / "Dockerfile").read_text()


DPKG = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u9
Description: a library
 Version: no

Package: python3-pip-whl
Status: install ok installed
Architecture: all
Version: 23.0.1

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1:1.0
"""


def test_a_bill_lists_packages_of_python_and_debian() -> None:
    made = sbom.bill(
        "typer==0.1 \\\n    --hash=sha256:" + "a" * 64, DPKG, 'ID=debian\nVERSION_ID="12"\n'
    )
    purls = [each["purl"] for each in made["components"]]
    assert [each for each in purls if "deb/" in each] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64&distro=debian-12"
    ]
    typer = next(each for each in made["components"] if each["name"] == "typer")
    assert typer["properties"] == [{"name": "dev.accelbind:locked-sha256", "value": "a" * 64}]
    assert typer["licenses"]
    assert made["metadata"]["component"]["name"] == "accelbind"
    assert len({each["bom-ref"] for each in made["components"]}) == len(purls) > 20
    assert {"bomFormat", "specVersion", "version"} < made.keys()


def test_a_bill_may_name_some_packages_only_and_is_the_same_each_time() -> None:
    command = [sys.executable, "tools/image/sbom.py", "requirements.lock", "accelbind"]
    texts = {
        subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(texts) == 1
    made = json.loads(texts.pop())
    assert made["metadata"]["component"]["name"] == "accelbind"
    assert [each for each in made["components"] if each["purl"].startswith("pkg:pypi")] == []


@contextmanager
def probe(code: int) -> Iterator[int]:
    """A plain port that answers every probe with a code."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(b"so it is")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def check_health(argument: int, environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", REPOSITORY / "tools" / "image" / "health.py", str(argument)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_the_health_check_asks_the_plain_port() -> None:
    with probe(200) as good, probe(503) as bad:
        assert check_health(good, {}) == (0, "")
        assert check_health(bad, {}) == (1, "/readyz: 503 so it is\n")
        assert check_health(bad, {"ACCELBIND_METRICS_PORT": str(good)}) == (0, "")
    code, said = check_health(good, {})
    assert code == 1
    assert "refused" in said


def make_hook(folder: Path, says: str) -> Path:
    (folder / "_internal").mkdir(parents=True)
    (folder / "_internal" / "word").write_text(says)
    script = folder / "accelbind-hook"
    script.write_text('#!/bin/sh\nread -r word <"${0%/*}/_internal/word"; echo "$word"\n')
    script.chmod(0o755)
    (folder / "_internal" / "library.so").symlink_to("word")
    return folder


def test_a_hook_is_installed_once_and_replaced_when_it_differs(tmp_path: Path) -> None:
    target = tmp_path / "host" / "opt" / "hook"
    old, new = make_hook(tmp_path / "old", "old\n"), make_hook(tmp_path / "new", "new\n")
    assert install_hook.install(old, target) is True
    assert install_hook.install(old, target) is False
    assert install_hook.install(new, target) is True
    said = subprocess.run([target / "accelbind-hook"], capture_output=True, text=True, check=True)
    assert said.stdout == "new\n"
    assert (target / "_internal" / "library.so").is_symlink()
    names = sorted(each.name for each in target.parent.iterdir())
    assert names == [".hook.a", ".hook.b", "hook"]  # the one before stays for hooks that run
    (target / "accelbind-hook").chmod(0o644)
    assert install_hook.install(new, target) is True


def test_a_hook_that_an_earlier_version_installed_as_a_folder_is_replaced(tmp_path: Path) -> None:
    target = make_hook(tmp_path / "hook", "old\n")
    make_hook(tmp_path / ".hook.new", "from a run that was killed\n")
    assert install_hook.install(make_hook(tmp_path / "source", "new\n"), target) is True
    assert (target / "_internal/word").read_text() == "new\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".hook.a", "hook", "source"]


def test_a_hook_that_is_started_meanwhile_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "hook"
    hooks = [make_hook(tmp_path / word, f"{word}\n") for word in ("one", "two")]
    install_hook.install(hooks[0], target)
    ended = threading.Event()

    def replace() -> None:
        for turn in range(200):
            install_hook.install(hooks[(turn + 1) % 2], target)
        ended.set()

    thread = threading.Thread(target=replace)
    thread.start()
    seen = []
    while not ended.is_set():
        seen.append((target / "accelbind-hook").read_text()[:9])
    thread.join()
    assert set(seen) == {"#!/bin/sh"}


def test_a_host_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    source, blocked = make_hook(tmp_path / "new", "new\n"), tmp_path / "file"
    blocked.write_text("no folder")
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            REPOSITORY / "tools/image/install_hook.py",
            source,
            blocked / "hook",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "must run as root and mount the host's folder there" in done.stderr
    command = [sys.executable, "-I", str(REPOSITORY / "tools/image/install_hook.py")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_nodes_are_laid_out_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert try_it(["cards", "--dir", str(tmp_path)]) == 0
    marks = [tmp_path / plan.name / "root" / "sys" / "mark" for plan in cluster.NODES]
    for mark in marks:
        mark.touch()
    assert try_it(["cards", "--dir", str(tmp_path)]) == 0
    assert all(mark.exists() for mark in marks)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "node-af: 3 x OPAE, mode af, 0 bitstreams",
        "node-region: 2 x DFL, mode region, 1 bitstreams",
    ]
    assert lines[2:] == [f"{line} (as they were)" for line in lines[:2]]
    assert list((tmp_path / "node-region" / "bitstreams").rglob("*.gbs"))
