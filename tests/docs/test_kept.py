"""The commands of docs/without-hardware.md work on the cluster that the demo keeps."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.accelbind.test_demo import processes_naming, start
from tests.docs.blocks import commands
from tests.support import REPOSITORY, Processes, clean_environment, eventually, require

PAGE: Final = "docs/without-hardware.md"
SECONDS: Final = 300
SAID: Final = (
    "STATUS    NODE",
    "gpu-small   nvidia.com/mig-1g.10gb",
    "9 ok, 2 skipped",
    "f7df405cbd7acf7222f144b0b93acd18.gbs",
    "2 bitstreams in",
    "dfl-port.0 is held by container loopback of pod default/region",
    "exit code 3",
    "dfl-port.0 has AFU f7df405cbd7acf7222f144b0b93acd18 now, programmed in",
    "dfl-port.0 is reset",
    "exit code 2",
    "pod/region condition met",
)
"""In the output, in this order."""
SHOWN: Final = (
    "accelbind.dev/gpu-small nvidia.com/mig-1g.10gb /dev/nvidia0",
    "fpga.intel.com/arria10-nbl0 refused; did you mean arria10-nlb0?",
    "resource devices node-af af 3 x OPAE device.accelbind.dev/intel-npu 1 fpga.intel.com/af-bfa",
    "the API server copies limits to requests before it calls the webhook",
    "- arria10-nlb0 + af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs = 1",
    "+ FPGA_AFU_1=d8424dc4a4a3c413f89e433683f9040b",
    "programmed dfl-port.0 with AFU d8424dc4a4a3c413f89e433683f9040b",
    "/dev/dfl-port.1 rw on node-region, in self-test and loopback",
    "- gpu-small + nvidia.com/mig-1g.10gb = 1 + MODEL_TIER=small",
    "npu intel-npu node-af accel0 running",
    "did you mean arria10-nlb0?",
    "pod asked for node device outcome gpu gpu-small node-af nvidia0 running",
    "function arria10-nlb0 node-af intel-fpga-port.0 running",
    "misspelled arria10-nbl0 - - refused (expected)",
    "8 of 8 pods behaved as expected; nothing is left running",
)
"""By the demo itself, whatever its lines."""


@pytest.mark.timeout(2 * SECONDS)
def test_programming_can_be_tried_without_hardware(
    processes: Processes, short_dir: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "demo.svg"
    demo = start(processes, short_dir, "--keep", "--svg", picture)
    eventually(lambda: "until Ctrl-C here" in demo.stdout, timeout=SECONDS, what="the kept demo")
    line = re.search(r"^ *(\. \S+/node-region/env)\b", demo.stdout, re.MULTILINE)
    assert line, demo.stdout
    assert max(map(len, demo.stdout.splitlines())) <= 80
    script = tmp_path / "page.sh"
    typed = [each.text for each in commands(PAGE) if each.plain != "accelbind demo --keep"]
    script.write_text("\n".join(["set -euo pipefail", line[1], *typed]))
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [require("bash"), script],
        cwd=REPOSITORY,
        env=clean_environment()
        | {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb"}
        | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    demo.popen.send_signal(signal.SIGINT)  # first: a demo that is killed leaves its processes
    assert demo.wait(SECONDS) == 0, demo.transcript()
    assert done.returncode == 0, done.stdout
    at = 0
    for words in SAID:
        at = done.stdout.find(words, at)
        assert at >= 0, (words, done.stdout)
    shown = re.sub(r"\s+", " ", demo.stdout)
    assert [words for words in SHOWN if words not in shown] == [], demo.stdout
    assert demo.stderr == ""
    assert picture.read_text() == (REPOSITORY / "docs" / "demo.svg").read_text(), "make picture"
    assert processes_naming(short_dir) == []
    assert list(short_dir.iterdir()) == []
