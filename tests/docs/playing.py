"""Runs the commands of a page in one shell, in their order, with what they need at hand.

`accelbind` is this repository's, and finds the stand-in node. `kubectl` is the real one behind a
script for what the API server stand-in lacks: it applies from the client, drains without evictions,
and runs here what `exec` would run in a pod. After an apply it waits until the webhook knows the
mappings.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.bitstreams import make_gbs
from simulator.cards import NLB3
from simulator.driver import raw_bitstream
from tests.docs.blocks import Command
from tests.docs.cluster import INTERFACE, Cluster
from tests.docs.elsewhere import who_runs
from tests.recorded import write_checkpoint
from tests.support import REPOSITORY, clean_environment, require

PROGRAMS = {"accelbind", "kubectl", "python", "cat", "cd", "echo", "export", "mkdir", "printf"}
PROGRAMS |= {"true", "rm", "grep", "cut"}
"""What pages may call, beside what runs elsewhere."""

ANSWERS = ("accelbind doctor", "accelbind check mappings", "kubectl exec", "kubectl diff")
"""Commands whose exit codes 1 and 2 are answers: something was found, or can't be checked here."""

COPIED = ("docs", "examples", "manifests", "simulator/demo/mappings", "tests/services")
TIME_LIMIT = 900
"""Seconds for a page: one takes ten where nothing else runs."""

_KUBECTL = """#!/bin/bash
kubectl=@KUBECTL@ kept=() words=("$@")
for at in "${!words[@]}"; do
    case "${words[at]}" in
        --server-side | --force-conflicts) ;;
        --) [[ " ${kept[*]} " == *" exec "* ]] && exec "${words[@]:at+1}" ;;
        *) kept+=("${words[at]}") ;;
    esac
done
if [[ $1 == drain ]]; then
    $kubectl cordon "$2"
    exec $kubectl delete pods --all-namespaces --field-selector "spec.nodeName=$2"
fi
[[ $1 == apply ]] || exec $kubectl "${kept[@]}"
$kubectl "${kept[@]}" || exit
if count=$($kubectl get acceleratorfunctions,fpgaregions -A -o name 2>/dev/null | wc -l); then
    cd @REPOSITORY@ && exec @PYTHON@ -m tests.docs.known @NODE@/webhook.ports "$count"
fi
"""
_ACCELBIND = """#!/bin/bash
export PYTHONPATH=@REPOSITORY@
case "$1" in
    devices | doctor)
        for word in "$@"; do
            [[ $word == --root || $word == --cluster ]] && exec @PYTHON@ -m accelbind "$@"
        done
        [[ $1 == doctor ]] || set -- "$@" --pod-logs-dir @NODE@/pod-logs
        set -- "$@" --root @NODE@/root --kubelet-dir @NODE@ ;;
    fpga)
        export ACCELBIND_ROOT=@NODE@/root ACCELBIND_STATE_DIR=@NODE@/state
        export ACCELBIND_KUBELET_DIR=@NODE@/idle  # nobody holds the port
        exec @PYTHON@ -m simulator.command "$@" ;;
    bitstream) export ACCELBIND_BITSTREAMS=@NODE@/bitstreams ;;
esac
exec @PYTHON@ -m accelbind "$@"
"""
_PYTHON = """#!/bin/bash
PYTHONPATH=@REPOSITORY@ exec @PYTHON@ "$@"
"""


class Scene:
    """A copy of what pages name, in a folder, and the programs that they call."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.home, self.cluster = folder / "clone", cluster
        for name in COPIED:
            shutil.copytree(REPOSITORY / name, self.home / name)
        for path in ("tests/__init__.py", "pyproject.toml"):
            shutil.copy(REPOSITORY / path, self.home / path)
        (self.home / ".kube").mkdir()
        shutil.copy(cluster.kubeconfig, self.home / ".kube" / "config")
        (self.home / "nlb3.gbs").write_bytes(make_gbs(INTERFACE, NLB3, raw_bitstream(NLB3)))
        write_checkpoint(cluster.folder / "idle")
        known = {
            "@PYTHON@": sys.executable,
            "@REPOSITORY@": str(REPOSITORY),
            "@NODE@": str(cluster.folder),
            "@KUBECTL@": require("kubectl"),
        }
        self.bin = self.home / ".venv" / "bin"
        self.bin.mkdir(parents=True)
        for name, text in (("accelbind", _ACCELBIND), ("kubectl", _KUBECTL), ("python", _PYTHON)):
            (self.bin / name).write_text(re.sub(r"@[A-Z]+@", lambda word: known[word[0]], text))
            (self.bin / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        return clean_environment() | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "TERM": "dumb",
            "TMPDIR": str(self.home.parent),
        }

    def play(self, commands: Sequence[Command], before: Sequence[str] = ()) -> str:
        """Run commands one after the other in one shell; fail with the first that fails.

        `before` is done first. Returns what the commands wrote.
        """
        place = self.home / "place"
        lines = ["set -euo pipefail", *before]
        for command in commands:
            if who_runs(command.plain) is None:
                lines += [f"echo '{command.page}:{command.line}' >{place}", _guarded(command)]
        script, said = self.home / "page.sh", self.home / "page.out"
        script.write_text("\n".join(lines) + "\n")
        with said.open("wb") as output:
            process = subprocess.Popen(
                [require("bash"), script],
                cwd=self.home,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(TIME_LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        where = place.read_text().strip() if place.exists() else "before the page"
        assert code == 0, f"{where}: {code}\n{said.read_text()[-2500:]}"
        return said.read_text()


def _guarded(command: Command) -> str:
    if command.plain.startswith(ANSWERS) and "\n" not in command.text:
        return f"{command.plain} || test $? -le 2"
    return command.text
