"""The kernel of the bed, built once from the distribution's source package.

It is kept in a cache folder, by a hash of the source and of all that goes into it.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

CONFIG: Final = Path(__file__).with_name("config")
SOURCE_VARIABLE: Final = "ACCELBIND_KERNEL_SOURCE"
"""The environment variable for the source of another kernel than this machine's."""
_SOURCES: Final = Path("/usr/src")
_ARCHIVE: Final = re.compile(r"linux-source-([0-9.]+)\.tar\.(?:xz|bz2)")
"""As Debian and Ubuntu name it."""
_OLD_OPTIONS: Final = frozenset({"CONFIG_BASE_FULL=y"})
"""What 6.12 no longer has to choose."""
_TOOLS: Final = ("make", "cc", "flex", "bison", "bc")
_PERF: Final = "\tselect HAVE_PERF_EVENTS\n"
_REGISTERS: Final = "HOST_FP_SIZE, 2696"
"""The space for a program's registers, in bytes: with AMX (11008) no program would start."""
READ_DELAY: Final = 60_000_000
"""Microseconds that a read of a card may take. This machine may be busy, and the answer to a read
that was given up is taken for that of the next one."""


class UnavailableError(Exception):
    """Why no kernel can be had on this machine."""


def kernel() -> Path:
    """The kernel's program; building it takes minutes.

    Raises:
        UnavailableError: The source or a tool is missing, or the build failed.
    """
    archive = _source()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accelbind/kernel"
    program = cache / _key(archive) / "linux"
    if program.exists():
        return program
    if missing := [each for each in _TOOLS if shutil.which(each) is None]:
        raise UnavailableError(f"to build a kernel, these tools are missing: {' '.join(missing)}")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
                _build(archive, Path(folder), program)
    return program


def _source() -> Path:
    if chosen := os.environ.get(SOURCE_VARIABLE):
        if not Path(chosen).is_file():
            raise UnavailableError(f"there is no kernel source {chosen} ({SOURCE_VARIABLE})")
        return Path(chosen).absolute()  # tar runs in another folder
    found = [
        (tuple(map(int, match[1].split("."))), path)
        for path in _SOURCES.glob("linux-source-*")
        if (match := _ARCHIVE.fullmatch(path.name))
    ]
    if not found:
        raise UnavailableError("there is no kernel source: install Debian's package linux-source")
    return max(found)[1]


def _key(archive: Path) -> str:
    state = archive.stat()
    parts = f"{archive.name} {state.st_size} {int(state.st_mtime)}".encode()
    parts += CONFIG.read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(parts).hexdigest()[:16]


def _build(archive: Path, folder: Path, program: Path) -> None:
    print(f"· building a kernel from {archive.name} (minutes, the first time)", flush=True)  # noqa: T201 - a program's output
    started = time.monotonic()
    _run(folder, "tar", "xf", str(archive), "--strip-components=1", "--exclude=*/Documentation/*")
    (folder / "Documentation").mkdir(exist_ok=True)
    (folder / "Documentation/Kconfig").touch()
    _adapt(folder)
    _run(folder, "make", "ARCH=um", f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
    _check(folder)
    jobs = len(os.sched_getaffinity(0))
    _run(folder, "nice", "make", "ARCH=um", f"-j{jobs}", "linux")
    program.parent.mkdir(exist_ok=True)
    partial = program.with_suffix(".partial")
    shutil.copy(folder / "linux", partial)
    partial.replace(program)
    print(f"· built in {time.monotonic() - started:.0f} s: {program}", flush=True)  # noqa: T201 - as above


def _adapt(folder: Path) -> None:
    """Let User Mode Linux have the drivers, which stay as they are."""
    options = folder / "arch/um/Kconfig"
    text = options.read_text()
    if _PERF not in text:  # the architecture has no counters of its own; software events suffice
        options.write_text(text.replace("\tselect HAVE_UID16\n", f"\tselect HAVE_UID16\n{_PERF}"))
        (folder / "arch/um/include/asm/perf_event.h").touch()
    sizes = folder / "arch/x86/um/user-offsets.c"  # newer kernels ask the processor
    sizes.write_text(sizes.read_text().replace(_REGISTERS, "HOST_FP_SIZE, 12288"))
    bus = folder / "arch/um/drivers/virt-pci.c"
    name = "UM_VIRT_PCI_MAXDELAY"  # before 6.12, which has a parameter for it
    bus.write_text(bus.read_text().replace(f"{name} 40000", f"{name} {READ_DELAY}"))


def _check(folder: Path) -> None:
    """Fail if an option was dropped, because another one that it needs is missing."""
    wanted = [line for line in CONFIG.read_text().splitlines() if line.startswith("CONFIG_")]
    chosen = set((folder / ".config").read_text().splitlines()) | _OLD_OPTIONS
    if dropped := [line for line in wanted if line not in chosen]:
        raise UnavailableError(f"this kernel has no {', '.join(dropped)}")


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"{' '.join(command[:3])} failed:\n{done.stdout[-3000:]}")
