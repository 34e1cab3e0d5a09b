"""The OCI hook: asks the plugin whether a container may start.

A runtime starts it on the host for each region that the CDI file gave a container, with the
container's state on stdin, and waits until it has ended. An exit code other than 0 keeps the
container from starting, with stderr as the reason. The hook decides nothing itself: it asks the
plugin on this node over a socket that only root can open. If the plugin does not answer, the
container does not start.

    accelbind-hook SOCKET REGION < state.json
"""

# docs/commands/hook.md has the text above. This runs before each container with a region, so it
# uses only a little of the standard library; and on hosts, so it has a Python of its own.

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
"""Those that identify the container (`services.containers.hook_call`)."""


def main() -> None:
    """Return if the plugin lets the container on stdin start; exit with the reason otherwise."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(SECONDS)
    if len(sys.argv) != 3:
        raise _refusal("usage: accelbind-hook SOCKET REGION, the container's state on stdin")
    path, region = sys.argv[1:]
    question = json.dumps({"region": region, "annotations": _annotations()})
    answer = _ask(path, question.encode() + b"\n")
    try:
        allowed, reason = json.loads(answer)
    except (ValueError, TypeError):
        raise _refusal(
            f"the accelbind plugin has ended, or broken off, before it decided ({path}); look at"
            " its log"
        ) from None
    if allowed is not True:
        raise _refusal(reason)


def _refusal(reason: str) -> SystemExit:
    return SystemExit(f"accelbind-hook: {reason}")  # which Python prints to stderr


def _too_late(*_: object) -> None:
    raise _refusal(
        f"no decision within {SECONDS} s: the runtime did not close stdin after the container's"
        " state, or the bundle's disk or the accelbind plugin is too slow"
    )


def _annotations() -> dict[str, str]:
    try:
        bundle = json.load(sys.stdin)["bundle"]
        with open(f"{bundle}/config.json", "rb") as file:  # noqa: PTH123 - pathlib would take longer than all of it
            annotations = json.load(file)["annotations"]
        # A pod's own annotations may have 256 KiB, and CRI-O writes them three times.
        return {key: annotations[key] for key in ANNOTATIONS if key in annotations}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _refusal(
            "the container's state on stdin, or the config.json of its bundle, can't be read"
            f" ({type(error).__name__}: {error}): a runtime has to start this"
        ) from None


def _ask(path: str, question: bytes) -> bytes:
    # The socket is one that only root can open. Without an answer the container does not start.
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(question)
            with connection.makefile("rb") as answer:
                return answer.readline()
    except OSError as error:
        raise _refusal(
            f"the accelbind plugin on this node can't be asked ({path}: {error.strerror or error}):"
            " is its pod running here, with --programming=oci-hook? Until it is, no container with"
            " a region starts"
        ) from None


if __name__ == "__main__":
    main()
