"""The parts of a pod that decide about its accelerators, decoded from JSON with msgspec.

Only the fields below are read; whatever else a pod holds, now or in later versions of Kubernetes,
is skipped. Env is left as bytes until `environment` is asked for it: most containers ask for no
accelerator, and theirs is never needed. ``null`` stands for absent wherever Kubernetes allows it.
What is decoded can't form cycles, so the garbage collector needn't look at it.
"""

from typing import TypeAlias

import msgspec

from services.process.errors import InvalidReview

REQUESTED_ANNOTATION = "accelbind.dev/requested"
"""Says what was asked of a pod by logical name, once the pod asks for physical ones."""

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On pods that the kubelet only shows to the API server; changing them changes nothing."""

Quantity: TypeAlias = str | int | float | None


class EnvVar(msgspec.Struct, gc=False, rename="camel"):
    """A variable of a container; `value_from` holds the bytes of where else it comes from."""

    name: str = ""
    value: str | None = None
    value_from: msgspec.Raw = msgspec.Raw(b"null")


class Resources(msgspec.Struct, gc=False):
    """What a container may use (limits) and what is set aside for it (requests)."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Container(msgspec.Struct, gc=False, rename="camel"):
    """A container or init container."""

    name: str = ""
    resources: Resources | None = None
    env: msgspec.Raw = msgspec.Raw(b"null")
    restart_policy: str | None = None


class Annotations(
    msgspec.Struct,
    gc=False,
    rename={"requested": REQUESTED_ANNOTATION, "mirror": MIRROR_ANNOTATION},
):
    """The annotations that mean something here."""

    requested: str | None = None
    mirror: str | msgspec.UnsetType | None = msgspec.UNSET


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """A pod's metadata; pods of a controller have only the beginning of a name yet."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    annotations: Annotations | None = None


class PodSpec(msgspec.Struct, gc=False, rename="camel"):
    """A pod's containers."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class Pod(msgspec.Struct, gc=False):
    """A pod, as far as its accelerators go."""

    metadata: Metadata | None = None
    spec: PodSpec | None = None

    @property
    def is_mirror(self) -> bool:
        """Whether this pod only shows what a kubelet runs anyway."""
        annotations = self.metadata.annotations if self.metadata else None
        return annotations is not None and annotations.mirror is not msgspec.UNSET

    @property
    def is_noted(self) -> bool:
        """Whether it says what was asked of it by logical name: it has been mutated before."""
        annotations = self.metadata.annotations if self.metadata else None
        return annotations is not None and annotations.requested is not None

    @property
    def display_name(self) -> str:
        """Its name, or the beginning of one that the API server will complete."""
        if not self.metadata:
            return ""
        return self.metadata.name or self.metadata.generate_name or ""


class Place(msgspec.Struct, frozen=True, gc=False):
    """A container and where it stands in its pod.

    Attributes:
        container: the container.
        path: the JSON pointer to it, such as ``/spec/initContainers/0``.
        init: whether it is an init container.
        sidecar: whether it is an init container that runs on beside the others.
    """

    container: Container
    path: str
    init: bool = False
    sidecar: bool = False


_ESCAPE = ord("\\")  # looking for bytes with `in` takes an exception that nobody sees
_ENVIRONMENT = msgspec.json.Decoder(list[EnvVar] | None)
_POD = msgspec.json.Decoder(Pod)


def decode(data: bytes | msgspec.Raw) -> Pod:
    """Read a pod from its JSON.

    Raises:
        InvalidReview: a field that matters has another type than Kubernetes gives it, or the text
            isn't JSON; the message has the field's path.
    """
    try:
        return _POD.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidReview(f"the pod can't be read: {error}") from error


def has_reserved(env: msgspec.Raw, reserved: bytes) -> bool:
    """Tell whether a container's env must be decoded: a reserved name may be in it, or nothing.

    Args:
        env: the bytes of its env.
        reserved: how reserved names begin.
    """
    data = bytes(env)
    # A name may be written with escapes; a list that isn't empty begins with a variable.
    return data.find(reserved) >= 0 or _ESCAPE in data or not data.startswith(b'[{"')


def environment(place: Place, reserved: bytes) -> tuple[list[EnvVar], bool]:
    """Return the variables of a container that matter, in order, and whether it has none at all.

    Args:
        place: the container.
        reserved: how the names of variables that matter begin; if this stands nowhere in the env,
            no variable is returned, and the bytes aren't decoded.

    Raises:
        InvalidReview: env isn't a list of variables; the message has the field's path.
    """
    env = place.container.env
    if not has_reserved(env, reserved):
        return [], False
    try:
        variables = _ENVIRONMENT.decode(env) or []
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidReview(f"the pod can't be read: {error} in {place.path}/env") from error
    return variables, not variables
