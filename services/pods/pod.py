"""The fields of a pod that matter for its accelerators, decoded from JSON with msgspec.

All other fields are skipped, those of later Kubernetes versions too. ``null`` means absent wherever
Kubernetes allows it.
"""

from typing import TypeAlias

import msgspec

from services.mappings.accelerator import CLAIM, CLAIM_TEMPLATE, Toleration, without_nulls
from services.process.errors import InvalidQuantity, InvalidReview
from services.process.json import UNREADABLE

REQUESTED_ANNOTATION = "accelbind.dev/requested"
"""What a pod requested by logical name, noted when its requests were rewritten. `env:NAME` is a
variable that a container sets itself, to the value that such a name would set."""

LIMIT_RANGER_ANNOTATION = "kubernetes.io/limit-ranger"
"""The defaults of LimitRanges that LimitRanger set in a pod."""

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
"""On mirror pods, which show static pods of a kubelet; from other users it has no effect."""

CONFIG_HASH_ANNOTATION = "kubernetes.io/config.hash"
"""On mirror pods: the UID of the static pod, by which its kubelet knows it."""

Quantity: TypeAlias = msgspec.Raw
"""A quantity, undecoded: only those of our resources are read, and a float may cost 10 µs."""


# gc=False: decoded pods can't form cycles, so the garbage collector needs not track them.
class EnvVar(msgspec.Struct, gc=False, rename="camel"):
    """A variable of a container; `value_from` is undecoded."""

    name: str = ""
    value: str | None = None
    value_from: msgspec.Raw = msgspec.Raw(b"null")


class ContainerClaim(msgspec.Struct, gc=False):
    """A claim of the pod that a container uses."""

    name: str = ""


class Resources(msgspec.Struct, gc=False):
    """Limits, requests and claims of a container."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None
    claims: list[ContainerClaim] | None = None


class Container(msgspec.Struct, gc=False, rename="camel"):
    """A container or init container."""

    name: str = ""
    resources: Resources | None = None
    env: msgspec.Raw = msgspec.Raw(b"null")  # decoded where an accelerator is requested
    restart_policy: str | None = None


class Annotations(
    msgspec.Struct,
    gc=False,
    rename={
        "requested": REQUESTED_ANNOTATION,
        "limit_ranger": LIMIT_RANGER_ANNOTATION,
        "mirror": MIRROR_ANNOTATION,
    },
):
    """The annotations that matter here."""

    requested: str | None = None
    limit_ranger: str | None = None
    mirror: str | msgspec.UnsetType | None = msgspec.UNSET


class PodMetadata(msgspec.Struct, gc=False, rename="camel"):
    """A pod's metadata; pods of a controller have only `generate_name` when they are reviewed."""

    name: str | None = None
    generate_name: str | None = None
    annotations: Annotations | None = None


class PodClaim(msgspec.Struct, gc=False, rename="camel"):
    """A claim of a pod, or the template that it is made from."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None

    @property
    def source(self) -> str:
        """The template as names of accelerators have it, or the claim."""
        if template := self.resource_claim_template_name:
            return CLAIM_TEMPLATE + template
        return CLAIM + (self.resource_claim_name or "")


class PodSpec(msgspec.Struct, gc=False, rename="camel"):
    """A pod's containers, resources and claims, and where it may run, undecoded."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    """Those of the whole pod, which can't have accelerators."""
    resource_claims: list[PodClaim] | None = None
    node_selector: msgspec.Raw = msgspec.Raw(b"null")
    tolerations: msgspec.Raw = msgspec.Raw(b"null")
    runtime_class_name: msgspec.Raw = msgspec.Raw(b"null")


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a pod may run."""

    node_selector: dict[str, str]
    tolerations: list[Toleration]
    runtime_class: str


class Pod(msgspec.Struct, gc=False):
    """A pod, with the fields that matter here."""

    metadata: PodMetadata | None = None
    spec: PodSpec | None = None

    @property
    def is_mirror(self) -> bool:
        """Whether it says that it is the mirror of a static pod, as anyone's pod may say."""
        annotations = self.metadata.annotations if self.metadata else None
        return annotations is not None and annotations.mirror is not msgspec.UNSET

    @property
    def is_noted(self) -> bool:
        """Whether it has the note of an earlier mutation."""
        annotations = self.metadata.annotations if self.metadata else None
        return annotations is not None and annotations.requested is not None

    @property
    def display_name(self) -> str:
        """Its name, or the prefix of a name that the API server will generate."""
        if not self.metadata:
            return ""
        return self.metadata.name or self.metadata.generate_name or ""


class ContainerRef(msgspec.Struct, frozen=True, gc=False):
    """A container and its position in the pod."""

    container: Container
    path: str
    """JSON pointer to it, such as ``/spec/initContainers/0``."""
    init: bool = False
    """Whether it is an init container."""
    sidecar: bool = False
    """Whether it is an init container that keeps running beside the others."""
    claims: tuple[tuple[str, str], ...] = ()
    """The claims that it uses: name in the pod, and `PodClaim.source`."""


_ESCAPE = ord("\\")  # an int: `in` with bytes is slower
_ENVIRONMENT = msgspec.json.Decoder(list[EnvVar] | None)
_POD = msgspec.json.Decoder(Pod)
_SELECTOR = msgspec.json.Decoder(dict[str, str] | None)
_RUNTIME_CLASS = msgspec.json.Decoder(str | None)
_TEXT = msgspec.json.Decoder(str)
_NULL = b"null"


def quantity_text(quantity: Quantity) -> str | None:
    """Return a quantity as a string, a number as it is written; None for ``null``.

    Raises:
        InvalidQuantity: it is a string that can't be decoded.
    """
    data = bytes(quantity)
    if data == _NULL:
        return None
    try:
        return _TEXT.decode(data) if data.startswith(b'"') else data.decode()
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidQuantity(f"a quantity can't be read: {error}") from error


def decode_pod(data: bytes | msgspec.Raw) -> Pod:
    """Read a pod from its JSON.

    Raises:
        InvalidReview: it isn't JSON, or a field has another type than in Kubernetes; the message
            has the field's path.
    """
    try:
        return _POD.decode(data)
    except UNREADABLE as error:
        raise InvalidReview(f"the pod can't be read: {error}") from error


def read_placement(pod: Pod) -> Placement:
    """Return where a pod may run.

    Raises:
        InvalidReview: a field has another type than in Kubernetes.
    """
    spec = pod.spec or PodSpec()
    try:
        tolerations = without_nulls(msgspec.json.decode(spec.tolerations))
        return Placement(
            _SELECTOR.decode(spec.node_selector) or {},
            msgspec.convert(tolerations, list[Toleration] | None) or [],
            _RUNTIME_CLASS.decode(spec.runtime_class_name) or "",
        )
    except UNREADABLE as error:
        raise InvalidReview(f"the pod can't be read: {error} in /spec") from error


def environment(ref: ContainerRef, reserved: bytes) -> tuple[list[EnvVar], bool]:
    """Return the variables of a container, in order, and whether it has none at all.

    Where no name has the prefix `reserved`, none of them is returned.

    Raises:
        InvalidReview: env isn't a list of variables; the message has the field's path.
    """
    env = ref.container.env
    if not _may_have(env, reserved):
        return [], False
    try:
        variables = _ENVIRONMENT.decode(env) or []
    except UNREADABLE as error:
        raise InvalidReview(f"the pod can't be read: {error} in {ref.path}/env") from error
    return variables, not variables


def _may_have(env: msgspec.Raw, reserved: bytes) -> bool:
    """Whether env may have a name with a prefix, or may be empty; if not, it isn't decoded."""
    data = bytes(env)
    # A name may be written with escapes; a list that isn't empty begins with a variable.
    return data.find(reserved) >= 0 or _ESCAPE in data or not data.startswith(b'[{"')
