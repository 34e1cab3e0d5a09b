"""The first process in a kernel of the bed: it calls functions of this module for the bed outside.

Requests come over a line of the console: the name of a function and its arguments. `accelbind` runs
in a fork of this process, which has imported it: a Python that starts takes seconds in there.
"""

import array
import asyncio
import contextlib
import fcntl
import io
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
import tty
from collections.abc import Callable, Sequence
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import grpc.aio

from accelbind import plugin as serving
from accelbind.devices import command as devices
from accelbind.devices.source import PlainPort
from accelbind.dra import command as dra
from accelbind.fpga import command as fpga
from accelbind.fpga.show import describe
from plugin import process
from services.bitstreams.storage import read_bitstream
from services.node.table import Table
from services.process.errors import HardwareError
from services.programming.image import Image
from services.programming.ioctls import KERNEL
from services.programming.programmer import Programmer
from simulator.apiserver import __main__ as apiserver
from simulator.client import Client
from simulator.kubelet import __main__ as kubelet
from tests.kernel.line import receive, send
from tests.plugin.dra.support import Kubelet
from tests.support import eventually

LINE: Final = "/dev/tty1"
PRELOADED: Final = (devices, dra, fpga, process, serving)
"""Commands run in forks of this process, which has imported what they need."""
HOME: Final = Path("/run/bed")
"""A file system in memory; all others but those of the kernel are read-only."""

_started: list[int] = []
_held: set[int] = set()


def read(path: str) -> str:
    """The content of a file, or the name of the error."""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"


def write(path: str, text: str) -> int:
    """Write a file in one go; the errno, 0 without one."""
    try:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or -1
    return 0


def files_read(root: str) -> dict[str, str]:
    """The files below a root's `sys` that accelbind reads of a card, with their content."""
    opened: set[str] = set()
    sys.addaudithook(lambda event, found: opened.add(str(found[0])) if event == "open" else None)
    for device in ("dfl-fme.0", "dfl-port.0"):
        describe(Path(root), device)
    place = str(Path(root, "sys")) + "/"
    files = [each for each in opened if each.startswith(place) and Path(each).exists()]
    return {each.removeprefix(place): read(each) for each in files}


def create(path: str, content: bytes) -> None:
    """Make a file with this content, and its folders."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content)


def shell(command: str) -> str:
    """The output of a shell command, whatever its exit code."""
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def accelbind(*arguments: str) -> tuple[int, str, str]:
    """Run the command line; its exit code, what it printed, and what it said of errors."""
    outputs = [HOME / "stdout", HOME / "stderr"]
    pid = _forked(lambda: _command(arguments), *outputs)
    _, status = os.waitpid(pid, 0)
    stdout, stderr = (each.read_text() for each in outputs)
    return os.waitstatus_to_exitcode(status), stdout, stderr


def ask(api_server: str, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """The answer of the API server stand-in."""
    with Client(api_server) as client:
        kind = "merge-patch+json" if method == "PATCH" else "json"
        return client.ask(method, path, body=body, content_type=f"application/{kind}")


def start(*arguments: str) -> int:
    """Start the command line, a stand-in, or a call of the DRA `driver`; the process's id."""
    log = HOME / f"{arguments[0]}.log"
    _started.append(_forked(lambda: _command(arguments), log, log))
    return _started[-1]


def end(pid: int, number: int = signal.SIGTERM) -> int:
    """End a process that `start` started; its exit code, negative for a signal."""
    _started.remove(pid)
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_for_path(path: str) -> None:
    """Wait until something is there."""
    eventually(Path(path).exists, timeout=60, what=path)


def table() -> Table:
    """The devices of the plugin or driver that runs."""
    status, found = PlainPort("127.0.0.1", 9102).devices()
    assert status == HTTPStatus.OK, found.problems
    return found


def seconds_until_gone(*orders: tuple[str, str]) -> float:
    """Write texts into files; how long it then takes until no healthy device is offered."""
    for file, text in orders:
        write(file, text)
    started = time.monotonic()
    eventually(lambda: all(each.reasons or not each.resource for each in table().devices))
    return time.monotonic() - started


def hold(node: str) -> int:
    """Open a device node and keep it open; the descriptor, or the negative errno."""
    try:
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return -(error.errno or 1)
    _held.add(descriptor)
    return descriptor


def let_go(descriptor: int) -> None:
    """Close what `hold` opened."""
    _held.remove(descriptor)
    os.close(descriptor)


def create_character_device(name: str) -> int:
    """Make a device of class `cuse`, which is there until the descriptor is let go."""
    descriptor = os.open("/dev/cuse", os.O_RDWR | os.O_CLOEXEC)
    (unique,) = struct.unpack_from("<Q", os.read(descriptor, 8192), 8)
    answer = struct.pack("<8I40x", 7, 31, 0, 0, 4096, 4096, 0, 0)
    answer += f"DEVNAME={name}\0".encode()
    os.write(descriptor, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
    wait_for_path(f"/dev/{name}")
    _held.add(descriptor)
    return descriptor


def create_tpm() -> int:
    """Make a TPM that needs new firmware, which is there until the descriptor is let go."""
    made = array.array("I", (1, 0, 0, 0, 0))
    with open("/dev/vtpmx", "r+b", buffering=0) as maker:  # noqa: PTH123 - a device
        fcntl.ioctl(maker, 0xC014_A100, made)
    while not Path("/dev/tpm0").exists():
        if select.select([made[2]], [], [], 0.05)[0]:
            is_locality = os.read(made[2], 4096)[6:10] == bytes.fromhex("20001000")
            os.write(made[2], struct.pack(">HII", 0x8001, 10, 0 if is_locality else 0x012D))
    _held.add(made[2])
    return made[2]


def create_input() -> int:
    """Make an input device, which is there until the descriptor is let go."""
    descriptor = os.open("/dev/uinput", os.O_RDWR | os.O_CLOEXEC)
    os.write(descriptor, b"keys".ljust(1116, b"\0"))
    fcntl.ioctl(descriptor, 0x5501)
    wait_for_path("/dev/input/event0")
    _held.add(descriptor)
    return descriptor


def ioctl(node: str, request: int, words: Sequence[int]) -> int:
    """Make a call with a structure of 32-bit words; the result, or the negative errno."""
    argument = array.array("I", words)
    try:
        descriptor = os.open(node, os.O_RDWR | os.O_CLOEXEC)
        try:
            return fcntl.ioctl(descriptor, request, argument if words else 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        return -(error.errno or 1)


def program(node: str, port: int, content: bytes) -> int:
    """Program a port by the bare ioctl; 0, or the negative errno."""
    data = array.array("B", content)
    low, high = data.buffer_info()[0] & 0xFFFF_FFFF, data.buffer_info()[0] >> 32
    return ioctl(node, 0xB680, (24, 0, port, len(content), low, high))


def ensure(port: str, file: str) -> str:
    """Have a port programmed as before a container starts; what became of it."""
    programmer = Programmer(Path("/"), Path("/run/state"), calls=KERNEL, rebinds=True)
    image = Image.from_bitstream(read_bitstream(Path(file)))
    try:
        return "programmed" if programmer.ensure(port, image).programmed else "there already"
    except HardwareError as error:
        return str(error)


def _forked(call: Callable[[], int], stdout: Path, stderr: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        for descriptor in _held:
            os.close(descriptor)
        for path, number in ((stdout, 1), (stderr, 2)):
            flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if stdout == stderr else os.O_TRUNC)
            os.dup2(os.open(path, flags), number)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            setattr(sys, name, io.TextIOWrapper(os.fdopen(number, "wb"), line_buffering=True))
        code = call()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


async def _call_driver(method: str, text: str = "null") -> int:
    """Call the DRA driver as the kubelet does: again until it succeeds, for a minute."""
    node, claim, until = Kubelet(Path("/run")), json.loads(text), time.monotonic() + 60
    while time.monotonic() < until:
        try:
            match method:
                case "register":
                    await node.register()
                    return 0
                case "prepare":
                    (done,) = (await node.prepare(claim)).values()
                    uid = claim["metadata"]["uid"]
                    print(done.error or f"{uid} is prepared")  # noqa: T201 - a program's output
                    if not done.error:
                        return 0
                case "unprepare":
                    await node.unprepare(claim)
                    return 0
        except grpc.aio.AioRpcError as error:
            print(error)  # noqa: T201 - as above
        await asyncio.sleep(0.5)  # until the next try, as the kubelet's
    return 1


def _command(arguments: Sequence[str]) -> int:
    if arguments[0] == "driver":
        return asyncio.run(_call_driver(*arguments[1:]))
    if arguments[0] == "kubelet":
        return kubelet.main(arguments[1:])
    if arguments[0] == "apiserver":
        asyncio.run(apiserver.run(apiserver.parser().parse_args(arguments[1:])))
        return 0
    from accelbind.cli import main as command  # noqa: PLC0415 - in the fork

    return command(arguments)


def main() -> None:
    """Answer requests until the kernel is halted."""
    HOME.mkdir(parents=True)
    descriptor = os.open(LINE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(descriptor)
    with Connection(descriptor) as line:
        send(line, ("ready", None))
        while True:
            name, arguments = receive(line)
            send(line, _answer(globals()[name], arguments))


def _answer(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[str, Any]:
    try:
        return "done", function(*arguments)
    except Exception:  # noqa: BLE001 - it is told outside
        return "failed", traceback.format_exc()


if __name__ == "__main__":
    main()
