"""Plays a document: its commands in one shell, in their order, with what they need at hand.

`accelbind` is this repository's, and on a node it finds the node of the cluster's stand-ins;
`kubectl` is the real one. What an API server stand-in lacks, a script before it does in another
way: it applies from the client, drains without evictions, and what is to run in a pod runs here,
as the pods' processes do. What comes after an apply is typed when the webhook has long been told
of mappings.
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
from tests.support import REPOSITORY, clean_environment, require

PROGRAMS = {"accelbind", "kubectl", "python", "cat", "cd", "echo", "export", "mkdir", "printf"}
PROGRAMS |= {"true", "rm", "grep", "cut"}
"""What the documents may have people type, beside what is run elsewhere."""

ANSWERS = ("accelbind doctor", "accelbind check mappings", "kubectl exec", "kubectl diff")
"""Commands whose exit code 1 is an answer: something was found."""

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
    cd @REPOSITORY@ && exec @PYTHON@ -m tests.docs.known @WEBHOOK@ "$count"
fi
"""
_ACCELBIND = """#!/bin/bash
export PYTHONPATH=@REPOSITORY@
case "$1" in
    devices | doctor)
        for word in "$@"; do [[ $word == --root ]] && exec @PYTHON@ -m accelbind "$@"; done
        exec @PYTHON@ -m accelbind "$@" @NODE@ ;;
    fpga)
        export ACCELBIND_ROOT=@ROOT@ ACCELBIND_STATE_DIR=@STATE@
        exec @PYTHON@ -c "from accelbind.cli import main
from simulator.driver import SimulatedCalls
raise SystemExit(main(driver_calls=SimulatedCalls()))" "$@" ;;
    bitstream) export ACCELBIND_BITSTREAMS=@BITSTREAMS@ ;;
esac
exec @PYTHON@ -m accelbind "$@"
"""
_PYTHON = """#!/bin/bash
PYTHONPATH=@REPOSITORY@ exec @PYTHON@ "$@"
"""


class Scene:
    """A copy of what the documents name, and the programs that they have people type.

    Args:
        folder: an empty one; the copy of the repository goes there.
        cluster: what `kubectl` and the commands on a node find; None if there is none.
    """

    def __init__(self, folder: Path, cluster: Cluster | None) -> None:
        self.home = folder / "clone"
        self.cluster = cluster
        for name in COPIED:
            shutil.copytree(REPOSITORY / name, self.home / name)
        for path in ("tests/__init__.py", "pyproject.toml"):
            shutil.copy(REPOSITORY / path, self.home / path)
        self.bin = self.home / ".venv" / "bin"
        self.bin.mkdir(parents=True)
        if cluster:
            (self.home / ".kube").mkdir()
            shutil.copy(cluster.kubeconfig, self.home / ".kube" / "config")
        self._install()

    def _install(self) -> None:
        base = self.cluster.folder if self.cluster else self.home / "no-node"
        root, state = base / "root", base / "state"
        node = ["--root", root, "--kubelet-dir", base, "--pod-logs-dir", base / "logs"]
        known = {
            "@PYTHON@": sys.executable,
            "@REPOSITORY@": str(REPOSITORY),
            "@NODE@": " ".join(map(str, node)),
            "@ROOT@": str(root),
            "@STATE@": str(state),
            "@BITSTREAMS@": str(base / "bitstreams"),
            "@KUBECTL@": require("kubectl") if self.cluster else "false",
            "@WEBHOOK@": str(base / "webhook.ports"),
        }
        for name, text in (("accelbind", _ACCELBIND), ("kubectl", _KUBECTL), ("python", _PYTHON)):
            script = re.sub(r"@[A-Z]+@", lambda word: known[word[0]], text)
            (self.bin / name).write_text(script)
            (self.bin / name).chmod(0o755)
        bitstream = make_gbs(INTERFACE, NLB3, raw_bitstream(NLB3))
        (self.home / "production").mkdir()
        for folder in (self.home, self.home / "production"):
            (folder / "nlb3.gbs").write_bytes(bitstream)

    def environment(self) -> dict[str, str]:
        """What the shell starts with."""
        given = {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.home)}
        if self.cluster:
            given["KUBECONFIG"] = str(self.cluster.kubeconfig)
        return clean_environment() | given | {"TERM": "dumb", "TMPDIR": str(self.home.parent)}

    def play(self, commands: Sequence[Command], before: Sequence[str] = ()) -> str:
        """Runs commands one after the other in one shell; fails with the first that does.

        Args:
            commands: those of a page.
            before: what to do first.

        Returns:
            What they wrote.
        """
        place = self.home / "place"
        lines = ["set -euo pipefail", "shopt -s expand_aliases", *before]
        for command in commands:
            if who_runs(command.plain) is None:
                lines += [f"echo '{command.page}:{command.line}' >{place}", _guarded(command)]
        script = self.home / "page.sh"
        script.write_text("\n".join(lines) + "\n")
        said = self.home / "page.out"
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
        return f"{command.plain} || test $? = 1"
    return command.text
