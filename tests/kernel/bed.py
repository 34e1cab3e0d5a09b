"""A bed: Linux as a process (User Mode Linux), with cards that are models of registers.

    with Bed(kernel, folder, [DflCard(PAC_A10)]) as bed:
        bed.accelbind("fpga", "list")

The root of the kernel in there is this machine's, read-only. It has its own `/sys`, `/proc` and
`/dev`; `/run`, and the folders of a kubelet and of accelbind, are in memory. The host's are out of
its reach. It reads and writes files as the user who started it, whoever it is in there.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from simulator.registers.cards import DflCard
from simulator.registers.vhost import VhostUserDevice
from tests.kernel.build import READ_DELAY
from tests.kernel.line import receive, send
from tests.support import REPOSITORY

DEVICE_ID: Final = 1234
"""Of the kernel's configuration."""
DRIVER: Final = "/sys/bus/pci/drivers/dfl-pci"
_MEMORY: Final = "768M"
_PATIENCE: Final = 120.0
_INIT: Final = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t configfs configfs /sys/kernel/config
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
for each in /var/lib/kubelet /var/lib/accelbind /var/log/pods /srv; do
    [ ! -d $each ] || mount -t tmpfs tmpfs $each
done
ip link set lo up 2>/dev/null || ifconfig lo up
export HOME=/run PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run PYTHONDONTWRITEBYTECODE=1
cd {repository} && exec {python} -m tests.kernel.guest
"""


class Done(NamedTuple):
    """The result of a command."""

    code: int
    stdout: str
    stderr: str


class Bed:
    """A kernel that runs, with its cards in the slots 0000:00:00.0, 0000:00:01.0 and so on."""

    def __init__(self, kernel: Path, folder: Path, cards: Sequence[DflCard]) -> None:
        self._kernel = kernel
        self._folder = folder
        self.cards = cards
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            sockets = [self._folder / f"card{number}" for number in range(len(self.cards))]
            for path, card in zip(sockets, self.cards, strict=True):
                stack.enter_context(VhostUserDevice(path, card.function.answer))
            init = self._folder / "init"
            init.write_text(_INIT.format(repository=REPOSITORY, python=sys.executable))
            init.chmod(0o755)
            ours, theirs = socket.socketpair()
            log = stack.enter_context((self._folder / "kernel.log").open("wb"))
            with theirs:
                self._process = subprocess.Popen(
                    [
                        *(self._kernel, f"mem={_MEMORY}", "root=none", "rootfstype=hostfs", "ro"),
                        *(f"init={init}", f"uml_dir={self._folder}", "umid=bed", "con=null"),
                        *("con0=null,fd:1", f"con1=fd:{theirs.fileno()}", "dummy_hcd.num=2"),
                        f"virt_pci.max_delay_us={READ_DELAY}",  # from 6.12 on
                        *(f"virtio_uml.device={each}:{DEVICE_ID}" for each in sockets),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env={"TMPDIR": str(self._folder), "HOME": str(self._folder)},
                )
            stack.callback(self._stop)
            self._line = stack.enter_context(Connection(ours.detach()))
            self._receive()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def log(self) -> str:
        """What the kernel and the first process in it have printed."""
        return (self._folder / "kernel.log").read_text(errors="replace")

    def call(self, name: str, *arguments: object) -> Any:
        """Call a function of `tests.kernel.guest` in there."""
        send(self._line, (name, arguments))
        return self._receive()

    def _receive(self) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while not self._line.poll(0.1):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no answer from the kernel:\n{self.log[-4000:]}")
        try:
            kind, value = receive(self._line)
        except EOFError:
            raise AssertionError(f"the kernel has ended:\n{self.log[-4000:]}") from None
        assert kind != "failed", value
        return value

    def accelbind(self, *arguments: str) -> Done:
        """Run the command line in there."""
        return Done(*self.call("accelbind", *arguments))

    def listed(self) -> list[dict[str, Any]]:
        """The rows of `accelbind fpga list`."""
        rows: list[dict[str, Any]] = json.loads(
            self.accelbind("fpga", "list", "-o", "json").stdout
        )["items"]
        return rows

    def reasons(self, device: str) -> set[str]:
        """The reasons why a device is unhealthy."""
        rows = {each["device"]: each for each in self.listed()}
        return {each["reason"] for each in rows[device]["problems"]}

    def restore(self) -> None:
        """Power the cards up again, and rebind their driver."""
        addresses = [f"0000:00:{number:02x}.0" for number in range(len(self.cards))]
        for address, card in zip(addresses, self.cards, strict=True):
            card.power_up()
            self.call("write", f"{DRIVER}/unbind", address)
        for address in addresses:  # all are unbound: each gets the numbers that it had at first
            assert self.call("write", f"{DRIVER}/bind", address) == 0, self.log
