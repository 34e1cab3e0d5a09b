"""What the tests of all rooms share: waiting, requirements, short folders, real processes.

Nothing here sleeps for a fixed time: `eventually` looks until a deadline, and a test that waits for
a process waits for something that the process does.
"""

import asyncio
import contextlib
import http.client
import inspect
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import pytest

T = TypeVar("T")
REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_IS_ABSENT = "the shared material (../shared) is not beside this clone"
SHARED_VARIABLE = "ACCELBIND_SHARED"
SHARED = Path(os.environ.get(SHARED_VARIABLE, REPOSITORY.parent / "shared"))
"""Where the shared material is."""
NOT_YET = (AssertionError, OSError, ValueError, http.client.HTTPException)
"""What may go wrong in a look at what isn't so yet."""
PATIENCE = 180.0
"""Seconds until a test gives up: what pauses between tries grow to (45), on a busy machine."""
NOT_INHERITED = ("ACCELBIND_", "KUBECONFIG", "KUBERNETES_SERVICE_", "COV_CORE_", "COLUMNS")


def shared_dir() -> Path | None:
    """The folder of shared material beside the clone, or None where there is none."""
    return SHARED if (SHARED / "facts").is_dir() else None


def require_shared(*parts: str) -> Path:
    """A file or folder of the shared material; skips the test where it is absent."""
    folder = shared_dir()
    if folder is None or not folder.joinpath(*parts).exists():
        pytest.skip(SHARED_IS_ABSENT)
    return folder.joinpath(*parts)


def require(tool: str) -> str:
    """The path of a program, or a skip that names it (a failure where REQUIRE_ALL=1)."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


def eventually(
    predicate: Callable[[], T | None],
    timeout: float = PATIENCE,
    interval: float = 0.02,
    what: str = "",
) -> T:
    """Call `predicate` until it gives something true, and return that.

    What goes wrong inside counts as "not yet" if it is an assertion that doesn't hold, a peer that
    can't be reached or a file that is away or half written: a predicate may be a block of
    assertions that ends with `return True`. Fails with the last of them, or with the last value.
    """
    deadline = time.monotonic() + timeout
    while True:
        value, problem = _look(predicate)
        if value:
            return cast("T", value)
        if time.monotonic() > deadline:
            _give_up(what, timeout, value, problem)
        time.sleep(interval)


async def eventually_async(
    predicate: Callable[[], Any],
    timeout: float = PATIENCE,  # noqa: ASYNC109 - a deadline of the test, not a cancellation
    interval: float = 0.02,
    what: str = "",
) -> Any:
    """As `eventually`, without holding up the event loop; `predicate` may be a coroutine."""
    deadline = time.monotonic() + timeout
    while True:
        value, problem = _look(predicate)
        if inspect.isawaitable(value):
            try:
                value = await value
            except NOT_YET as error:
                value, problem = None, error
        if value:
            return value
        if time.monotonic() > deadline:
            _give_up(what, timeout, value, problem)
        await asyncio.sleep(interval)


@contextlib.asynccontextmanager
async def background(loop: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """A loop that runs meanwhile, and must not end by itself."""
    task = asyncio.create_task(loop)
    try:
        yield
        assert not task.done(), f"it has ended: {task}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _look(predicate: Callable[[], object]) -> tuple[object, Exception | None]:
    try:
        return predicate(), None
    except NOT_YET as error:
        return None, error


def _give_up(what: str, timeout: float, value: object, problem: Exception | None) -> None:
    last = problem or value
    raise AssertionError(
        f"{what or 'the condition'} did not come true within {timeout} s (last: {last!r})"
    ) from problem


class Process:
    """A real process in a process group of its own, with its output in a file.

    Use it as a context manager, or through the `processes` fixture, which kills what a test left
    and fails if the group outlives its leader.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        folder: Path,
        name: str = "process",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.out_path = folder / f"{name}.out"
        self.err_path = folder / f"{name}.err"
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.popen = subprocess.Popen(
                [str(argument) for argument in arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=clean_environment() | dict(env or {}),
                cwd=REPOSITORY,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    @property
    def stdout(self) -> str:
        return self.out_path.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self.err_path.read_text(errors="replace")

    def ports(self, path: Path, timeout: float = PATIENCE) -> dict[str, int]:
        """The ports that it chose, once it has written them to its ports file."""

        def read() -> dict[str, int] | None:
            self.assert_running()
            found = json.loads(path.read_text())
            return {str(key): int(value) for key, value in found.items()}

        return self._wait_for(read, timeout, f"the ports file of {self}")

    def wait_for_output(self, text: str, timeout: float = PATIENCE) -> str:
        """Wait until `text` stands in its output, and give the line it stands in."""

        def line() -> str | None:
            found = [line for line in (self.stderr + self.stdout).splitlines() if text in line]
            if not found:
                self.assert_running()
            return found[0] if found else None

        return self._wait_for(line, timeout, f"{text!r} in the output of {self}")

    def _wait_for(self, look: Callable[[], T | None], timeout: float, what: str) -> T:
        try:
            return eventually(look, timeout, 0.01, what)
        except AssertionError as error:
            pytest.fail(f"{error}\n{self.transcript()}")

    def assert_running(self) -> None:
        """Fail, with what it wrote, if it has ended."""
        if not self.running:
            pytest.fail(f"{self} ended with {self.popen.returncode}\n{self.transcript()}")

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end and give its exit code (negative: the signal that ended it)."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self} did not end within {timeout} s\n{self.transcript()}")

    def terminate(self, timeout: float = PATIENCE) -> int:
        """Ask it to end (SIGTERM) and give its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait(60)

    def transcript(self) -> str:
        return f"--- {self.name} stdout\n{self.stdout}\n--- {self.name} stderr\n{self.stderr}"

    def __repr__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def group_members(group: int) -> list[int]:
    """The processes of a process group that are alive (zombies don't count)."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                members.append(int(stat.parent.name))
    return members


def clean_environment() -> dict[str, str]:
    """Our environment without what would configure accelbind or Kubernetes clients."""
    return {key: value for key, value in os.environ.items() if not key.startswith(NOT_INHERITED)}


def python_module(module: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", module, *(str(argument) for argument in arguments)]


def accelbind_command(*arguments: str | Path) -> list[str]:
    return python_module("accelbind", *arguments)


class Processes:
    """Starts processes for one test and ends them with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Process] = []

    def start(
        self,
        arguments: Sequence[str | Path],
        *,
        name: str = "process",
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a command line; the name is made unique within the test."""
        unique = f"{name}-{len(self._started)}"
        process = Process(arguments, folder=self._folder, name=unique, env=env)
        self._started.append(process)
        return process

    def accelbind(
        self, *arguments: str | Path, name: str = "", env: Mapping[str, str] | None = None
    ) -> Process:
        name = name or str(arguments[0])
        return self.start(accelbind_command(*arguments), name=name, env=env)

    def simulated_plugin(
        self, *flags: str | Path, name: str = "plugin", env: Mapping[str, str] | None = None
    ) -> Process:
        """Start `accelbind plugin …` with the ioctls of simulated cards."""
        return self.start(python_module("simulator.command", "plugin", *flags), name=name, env=env)

    def close(self) -> Iterator[str]:
        """Kill all of them; yield a sentence for each that had left children behind."""
        for process in reversed(self._started):
            left = [] if process.running else group_members(process.pid)
            process.kill()
            if left:
                yield f"{process} ended but left {left} running\n{process.transcript()}"


@dataclass(frozen=True, slots=True)
class Soak:
    """How long a long test runs, and what its randomness starts from."""

    seconds: float
    seed: int


@contextlib.contextmanager
def disk_full_after(size: int) -> Iterator[None]:
    """No file may grow beyond this: the system writes what fits, and then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def holding(path: Path) -> Iterator[int]:
    """Have another process hold a file open; give its number."""
    waiting = [sys.executable, "-c", "import signal; signal.pause()"]
    with path.open("r+b") as held:
        holder = subprocess.Popen(waiting, stdin=held)
    try:
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


def soaking() -> bool:
    return os.environ.get("SOAK") == "1"


def soak(*, short: float, full: float) -> Soak:
    """The length and seed of a test marked `long`.

    `make soak` looks where nobody has been, so its seed is another one each time; `make test` must
    say the same of the same code, so there it is always the same.
    """
    told = os.environ.get("SOAK_SECONDS")
    unless_told = full if soaking() else short
    chosen = random.randrange(2**32) if soaking() else 1  # noqa: S311 - no secret
    seed = os.environ.get("SOAK_SEED") or chosen
    return Soak(float(told) if told else unless_told, int(seed))
