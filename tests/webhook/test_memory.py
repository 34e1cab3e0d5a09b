"""Floods of clients in the webhook's memory cgroup: process and sockets, as its container counts.

A cgroup needs root, and version 2 its memory controller in the root's `cgroup.subtree_control`.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import REPOSITORY, ROOT_IS_NEEDED, eventually
from tests.webhook import attackers
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, mapping_yaml, patch_of
from tests.webhook.running import HEADERS, Webhook


def accelerator_yaml(name: str, **spec: object) -> str:
    """An Accelerator as a document of YAML."""
    meta = {"name": name, "namespace": "default"}
    kind = {"apiVersion": "accelbind.dev/v1alpha1", "kind": "Accelerator"}
    return f"---\n{json.dumps({**kind, 'metadata': meta, 'spec': spec})}\n"


TARGETS = [f"{'d' * 63}.{'d' * 63}.{'d' * 63}.{n:061}/{'r' * 63}" for n in range(255)]
MAPPINGS = "".join(
    (
        mapping_yaml(),
        *(
            accelerator_yaml(name, target={"resource": target})
            for name, target in zip(attackers.NAMES, TARGETS, strict=True)
        ),
        accelerator_yaml(
            "large",
            target={"resource": "a.example/x"},
            env=[{"name": f"V{n}", "value": chr(1) * 1024} for n in range(16)],
        ),
    )
)
"""Those of the largest possible answer."""
MEBIBYTE = 1024 * 1024
VERSION_1 = Path("/sys/fs/cgroup/memory")
VERSION_2 = Path("/sys/fs/cgroup")


class MemoryCgroup:
    """A cgroup that a process is moved to."""

    def __init__(self, parent: Path, pid: int) -> None:
        self._folder = parent / f"accelbind-test-{pid}"
        self._folder.mkdir()
        self._counts = ["memory.current"]
        if parent == VERSION_1:
            # Sockets are counted apart, and only with a limit.
            (self._folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(1 << 40))
            self._counts = ["memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"]
        (self._folder / "cgroup.procs").write_text(str(pid))

    @property
    def used(self) -> int:
        """Bytes of memory, sockets included."""
        return sum(int((self._folder / count).read_text()) for count in self._counts)

    def remove(self) -> bool:
        """Remove it, which fails until its process has ended."""
        self._folder.rmdir()
        return True


@contextlib.contextmanager
def memory_cgroup(webhook: Webhook) -> Iterator[MemoryCgroup]:
    controllers = VERSION_2 / "cgroup.subtree_control"
    parent = VERSION_1
    if controllers.exists() and "memory" in controllers.read_text():
        parent = VERSION_2
    if os.getuid() or not parent.is_dir():
        pytest.skip(f"{ROOT_IS_NEEDED}: make a memory cgroup")
    group = MemoryCgroup(parent, webhook.process.pid)
    try:
        yield group
    finally:
        webhook.process.kill()
        eventually(group.remove)


@contextlib.contextmanager
def attacked(webhook: Webhook, kind: str, number: int) -> Iterator[None]:
    """The attack from when all clients have sent what they send."""
    command = [sys.executable, "-m", "tests.webhook.attackers", str(webhook.port), kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, str(number)], cwd=REPOSITORY, stdin=pipe, stdout=pipe
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"sent\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("bodies", 60),
        ("hellos", 400),
        ("unread", 300),
        ("largest", 60),
        ("heads", 100),
        ("idle", 100),
    ],
)
def test_a_flood_adds_less_than_110_mib_and_reviews_are_answered(
    start: Starter,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
    kind: str,
    number: int,
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # as in manifests/base/webhook.yaml
    webhook = start(mappings=MAPPINGS)
    assert patch_of(webhook.ask("/mutate", body()).body)
    largest = webhook.ask("/mutate", attackers.SENT["largest"].partition(b"\r\n\r\n")[2])
    assert len(largest.body) > 480_000
    with memory_cgroup(webhook) as group, contextlib.closing(webhook.connect()) as kept:
        before, most, slowest = group.used, 0, 0.0
        with attacked(webhook, kind, number):
            for turn in range(5):
                begun = time.monotonic()
                kept.request("POST", "/mutate", body(uid=f"kept-{turn}"), HEADERS)
                assert patch_of(kept.getresponse().read(), f"kept-{turn}")
                fresh = webhook.ask("/mutate", body(uid=f"fresh-{turn}"))
                assert patch_of(fresh.body, f"fresh-{turn}")
                slowest = max(slowest, time.monotonic() - begun)
                most = max(most, group.used)
        figure(
            f"{(most - before) / MEBIBYTE:.0f} MiB more; two reviews took {slowest:.2f} s at most"
        )
        assert most - before < 110 * MEBIBYTE
