"""The OCI hook: asks the plugin whether a container may start.

A runtime starts it on the host, with the container's state on stdin, and waits until it has ended.
An exit code other than 0 keeps the container from starting, with stderr as the reason. The hook
decides nothing itself: it asks the plugin on this node over a socket that only root can open. If
the plugin does not answer, the container does not start.

    accelbind-hook [--socket /run/accelbind/hook.sock] < state.json

It uses only a little of Python's standard library, since it runs before each container with a
region. Since it runs on hosts, it is shipped as a folder with its own Python.
"""

import json
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a third as long as all the rest
    from typing import Any

SOCKET = "/run/accelbind/hook.sock"
SECONDS = 28.0
"""Longer than the plugin needs at most, shorter than runtimes wait."""

READ_SECONDS = 10
"""For the container's state: stdin may never end, and a bundle's disk may hang."""

ANNOTATIONS = (
    *("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"),
    *("io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.container-name"),
    *("io.kubernetes.pod.uid", "io.kubernetes.container.name"),
)
"""Those that identify the container (`services.containers.hook_call`). A pod's own annotations may
have 256 KiB, and CRI-O writes them three times."""

MAX_STATE = 16 * 1024 * 1024
MAX_CONFIG = 16 * 1024 * 1024


class Refused(Exception):
    """The container may not start, and why."""


def main(arguments: list[str] | None = None) -> int:
    """Ask the plugin, and return the exit code: 0 if the container may start."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        authorize_start(_socket_of(given), _read_message())
    except Refused as refused:
        print(f"accelbind-hook: {refused}", file=sys.stderr)  # noqa: T201 - runtimes show it
        return 1
    return 0


def _socket_of(arguments: list[str]) -> str:
    if len(arguments) == 2 and arguments[0] == "--socket":
        return arguments[1]
    if arguments:
        raise Refused("usage: accelbind-hook [--socket PATH], the container's state on stdin")
    return SOCKET


def _read_message() -> "dict[str, Any]":
    """The message for the plugin, from what the runtime passes."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(READ_SECONDS)
    try:
        return _message(_state())
    finally:
        signal.alarm(0)


def _too_late(*_: object) -> None:
    raise Refused(
        f"the container's description isn't complete after {READ_SECONDS} s: the runtime didn't"
        " close stdin after its state, or reading the bundle's config.json takes too long"
    )


def _state() -> bytes:
    """What is on stdin, which is None if it is closed."""
    try:
        return sys.stdin.buffer.read(MAX_STATE + 1) if sys.stdin else b""
    except OSError as error:
        raise Refused(f"stdin can't be read: {error.strerror}") from None


def authorize_start(path: str, message: "dict[str, Any]") -> None:
    """Return if the plugin at a socket lets the container start; raise `Refused` otherwise."""
    answer = _exchange(path, json.dumps(message).encode())
    try:
        found = json.loads(answer)
        allowed, reason = found["allowed"], str(found.get("message", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Refused(
            f"the accelbind plugin has ended, or broken off, before it decided ({path}); look at"
            " its log"
        ) from None
    if allowed is not True:
        raise Refused(reason or "refused, without a reason")


def _message(state: bytes) -> "dict[str, Any]":
    """The state, with the annotations and devices of the container's configuration."""
    if len(state) > MAX_STATE:
        raise Refused(f"the container's state is longer than {MAX_STATE} bytes")
    try:
        found = json.loads(state)
        bundle = found["bundle"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refused("stdin holds no state of a container: a runtime has to start this") from None
    path = f"{bundle}/config.json"
    config = _config(path)
    try:
        devices = (config.get("linux") or {}).get("devices") or ()
        paths = [{"path": str(each.get("path", ""))} for each in devices]
        annotations = _known(config.get("annotations"))
    except (AttributeError, TypeError):
        raise Refused(f"{path} is not a container's configuration") from None
    try:
        known = _known(found.get("annotations"))
    except (AttributeError, TypeError):
        raise Refused("the annotations of the container's state can't be read") from None
    return {"state": {"annotations": known}, "annotations": annotations, "devices": paths}


def _known(annotations: "dict[str, Any] | None") -> "dict[str, Any]":
    found = annotations or {}
    return {key: found[key] for key in ANNOTATIONS if key in found}


def _config(path: str) -> "dict[str, Any]":
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would take longer than all of it
            found = json.loads(file.read(MAX_CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"the container's configuration {path} can't be read: {error}") from None
    if not isinstance(found, dict):
        raise Refused(f"{path} is not a container's configuration")
    return found


def _exchange(path: str, message: bytes) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(path)
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
            return answer
    except TimeoutError:
        raise Refused(f"the accelbind plugin gave no answer within {SECONDS:g} s") from None
    except OSError as error:
        raise Refused(
            f"the accelbind plugin on this node can't be asked ({path}: {error.strerror or error}):"
            " is its pod running here, with --programming=oci-hook? Until it is, no container with"
            " a region starts"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
