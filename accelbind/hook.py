"""The OCI hook: asks the plugin whether a container may start.

A runtime starts it on the host for each region that the CDI file gave a container, with the
container's state on stdin, and waits until it has ended. An exit code other than 0 keeps the
container from starting, with stderr as the reason. The hook decides nothing itself: it asks the
plugin on this node over a socket that only root can open. If the plugin does not answer, the
container does not start.

    accelbind-hook SOCKET REGION < state.json

It uses only a little of Python's standard library, since it runs before each container with a
region. Since it runs on hosts, it is shipped as a folder with its own Python.
"""

import json
import signal
import socket
import sys

SECONDS = 28
"""Longer than the plugin needs at most, shorter than runtimes wait."""

ANNOTATIONS = (
    *("io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.container-name"),
    *("io.kubernetes.pod.uid", "io.kubernetes.container.name"),
)
"""Those that identify the container (`services.containers.hook_call`). A pod's own annotations may
have 256 KiB, and CRI-O writes them three times."""


class HookRefused(Exception):
    """The container may not start, and why."""


def main(arguments: list[str] | None = None) -> int:
    """Ask the plugin, and return the exit code: 0 if the container may start."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(SECONDS)
    try:
        authorize_start(sys.argv[1:] if arguments is None else arguments)
    except HookRefused as refused:
        print(f"accelbind-hook: {refused}", file=sys.stderr)  # noqa: T201 - runtimes show it
        return 1
    finally:
        signal.alarm(0)
    return 0


def _too_late(*_: object) -> None:
    raise HookRefused(
        f"no decision within {SECONDS} s: the runtime did not close stdin after the container's"
        " state, or the bundle's disk or the accelbind plugin is too slow"
    )


def authorize_start(arguments: list[str]) -> None:
    """Return if the plugin lets the container on stdin start; raise `HookRefused` otherwise."""
    if len(arguments) != 2:
        raise HookRefused("usage: accelbind-hook SOCKET REGION, the container's state on stdin")
    path, region = arguments
    question = json.dumps({"region": region, "annotations": _annotations()})
    answer = _ask(path, question.encode() + b"\n")
    try:
        allowed, reason = json.loads(answer)
    except (ValueError, TypeError):
        raise HookRefused(
            f"the accelbind plugin has ended, or broken off, before it decided ({path}); look at"
            " its log"
        ) from None
    if allowed is not True:
        raise HookRefused(reason)


def _annotations() -> dict[str, str]:
    """What the container's configuration says of who is starting."""
    try:
        bundle = json.load(sys.stdin)["bundle"]
        with open(f"{bundle}/config.json", "rb") as file:  # noqa: PTH123 - pathlib would take longer than all of it
            annotations = json.load(file)["annotations"]
        return {key: annotations[key] for key in ANNOTATIONS if key in annotations}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HookRefused(
            "the container's state on stdin, or the config.json of its bundle, can't be read"
            f" ({type(error).__name__}: {error}): a runtime has to start this"
        ) from None


def _ask(path: str, question: bytes) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(question)
            with connection.makefile("rb") as answer:
                return answer.readline()
    except OSError as error:
        raise HookRefused(
            f"the accelbind plugin on this node can't be asked ({path}: {error.strerror or error}):"
            " is its pod running here, with --programming=oci-hook? Until it is, no container with"
            " a region starts"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
