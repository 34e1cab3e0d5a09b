"""Commands that reach the API server with kubectl, for as long as they run."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accelbind.cluster import Target
from services.kube.access import find_access
from services.process.errors import ClusterError, InvalidSettings
from tests.accelbind.running import Done, run, run_process, write_config
from tests.support import (
    Process,
    Processes,
    accelbind_command,
    clean_environment,
    eventually,
    python_module,
    require,
)

PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable"}


@pytest.fixture
def api(tmp_path: Path, processes: Processes) -> Path:
    """The kubeconfig of an API server stand-in, for kubectl."""
    require("kubectl")
    folder = tmp_path / "api"
    server = processes.start(
        python_module("simulator.apiserver", "--dir", folder, "--ports-file", tmp_path / "ports")
    )
    server.ports(tmp_path / "ports")
    return folder / "kubeconfig"


@pytest.fixture(autouse=True)
def no_other_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "ACCELBIND_API_SERVER", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A user with a credential plugin."""
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"exec": PLUGIN | {"command": str(program)}}


def check(*flags: str | Path, **variables: str) -> Done:
    return run_process("check", "mappings", *flags, env=variables)


@pytest.mark.parametrize("named", ["flag", "variable", "home"])
def test_a_kubeconfig_is_read_by_kubectl_wherever_kubectl_finds_it(
    api: Path, tmp_path: Path, short_dir: Path, named: str
) -> None:
    if named == "home":
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_bytes(api.read_bytes())
    flags = ("--kubeconfig", api) if named == "flag" else ()
    variables = {"KUBECONFIG": str(api)} if named == "variable" else {}
    done = check(*flags, HOME=str(tmp_path), TMPDIR=str(short_dir), **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 mappings in 0 namespaces" in done.stdout
    assert [*short_dir.iterdir()] == []
    eventually(lambda: not proxies(short_dir), what="kubectl has ended")


def test_a_context_is_chosen_and_an_unknown_one_explained(api: Path) -> None:
    done = check("--kubeconfig", api, "--context", "accelbind-simulator")
    assert done.returncode == 0, done
    done = check("--kubeconfig", api, "--context", "nope")
    assert done.returncode == 2
    assert "kubectl can't use --kubeconfig: cannot locate context nope" in done.stderr


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", ("the API server of kubectl answers 500 to GET", "connect: connection refused")),
        ("echo log in first >&2; exit 3", ("log in first", "failed with exit code 3")),
    ],
)
def test_what_fails_in_kubectl_is_explained_in_its_words(
    tmp_path: Path, script: str, words: tuple[str, str]
) -> None:
    require("kubectl")
    user = plugin(tmp_path, script) if script else None
    done = check("--kubeconfig", write_config(tmp_path, {"server": "https://127.0.0.1:9"}, user))
    assert (done.returncode, [each for each in words if each not in done.stderr]) == (2, [])


def test_a_credential_plugin_may_ask_a_person_on_the_terminal(tmp_path: Path, api: Path) -> None:
    """The plugin reads the token from the terminal."""
    server = "https://127.0.0.1:" + api.read_text().split("https://127.0.0.1:")[1].split('"')[0]
    token = api.read_text().split('"token": "')[1].split('"')[0]
    script = (
        'printf "Token: " >&2; read -r token\n'
        'printf \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "%s"}}\' "$token"'
    )
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    config = write_config(tmp_path, cluster, plugin(tmp_path, script))
    ours, theirs = pty.openpty()
    command = accelbind_command("check", "mappings", "--kubeconfig", config)
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=clean_environment()
    ) as process:
        os.close(theirs)
        shown = b""
        while b"Token: " not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, f"{token}\n".encode())
        assert process.stdout is not None
        assert b"0 mappings" in process.stdout.read()
    os.close(ours)
    assert process.returncode == 0


def proxies(folder: Path) -> list[Path]:
    """The processes whose temporary folder is this one."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={folder}".encode() in (each / "environ").read_bytes().split(b"\0"):
                found.append(each)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_kubectl_ends_with_the_command_however_that_ends(
    api: Path, tmp_path: Path, short_dir: Path, number: int
) -> None:
    script = (
        "import signal, sys; from pathlib import Path; from accelbind.cluster import Target\n"
        "with Target(kubeconfig=Path(sys.argv[1])).access(): print('serves'); signal.pause()"
    )
    command = [sys.executable, "-u", "-c", script, str(api)]
    env = {"TMPDIR": str(short_dir)}
    with Process(command, folder=tmp_path, env=env) as process:
        process.wait_for_output("serves")
        assert len(proxies(short_dir)) == 3, "the command, kubectl, and who waits for the end"
        assert any(short_dir.glob("accelbind-*/socket"))
        os.kill(process.pid, number)
        process.wait()
        eventually(lambda: not proxies(short_dir), what="kubectl has ended")
        eventually(lambda: not any(short_dir.iterdir()), what="its folder is gone")


@pytest.mark.parametrize("apart", [False, True])
def test_kubectl_has_the_terminal_or_is_apart_from_its_signals(api: Path, *, apart: bool) -> None:
    with Target(kubeconfig=api).access(apart=apart) as access:
        folder = access.server.removeprefix("unix:").removesuffix("/socket").encode()
        sessions = set()
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # others' processes end meanwhile
                line = (each / "cmdline").read_bytes()
                if folder in line and b"sh\0" not in line:
                    sessions.add(os.getsid(int(each.name)))
    assert len(sessions) == 1
    assert (sessions != {os.getsid(0)}) is apart


@pytest.mark.parametrize("flag", ["--kubeconfig", "--context"])
def test_flags_for_kubectl_without_kubectl_are_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("check", "mappings", flag, "/x")
    assert done.returncode == 2
    assert f"{flag} needs kubectl, which is not in PATH" in done.stderr


def test_the_pod_counts_last_and_without_kubectl_before_a_file_in_a_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "namespace").write_text("mine")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("{}")
    with pytest.raises(ClusterError, match=r"~/\.kube/config needs kubectl"), Target().access():
        pass
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr("accelbind.cluster.find_access", partial(find_access, account=account))
    with Target().access() as access:
        assert (access.server, access.account) == ("https://10.0.0.1:443", account)
    assert Target().namespace() == "mine"
    with Target("unix:/s").access() as access:
        assert (access.server, access.account) == ("unix:/s", None)
    assert Target("unix:/s").namespace() == "default"
    with pytest.raises(ClusterError, match="needs kubectl"), Target(context="c").access():
        pass


def test_an_address_excludes_flags_for_kubectl() -> None:
    with pytest.raises(InvalidSettings, match="--api-server excludes"):
        Target("unix:/s", context="c")
