"""The spec of an Accelerator: a resource or claims, and what a pod that requests it gets as well.

The schema in ``manifests/crd/accelerators.yaml`` refuses the same; a folder has no API server.
"""

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from services import names
from services.process.errors import InvalidName
from services.process.text import listing, plain, quote

ENTRY: Final = 64
"""Bytes that a variable, label, toleration or further resource counts besides its own."""

DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of the resource that stands for a DeviceClass."""

CLAIM_TEMPLATE: Final = "ResourceClaimTemplate/"
"""The prefix of a ResourceClaimTemplate as a target; no domain of a resource has capitals."""

CLAIM: Final = "ResourceClaim/"
"""The prefix of a ResourceClaim, which no name stands for."""

MAX_CLAIMS: Final = 16
"""How many claims the names of a pod may stand for."""

_LEVELS: Final = 3
"""How deep fields of a spec are: its own, those of a list, and those of an item."""

_RESERVED_VARIABLES = ("FPGA_", "ACCELBIND_", "ACCELERATOR_", "NVIDIA_", "LD_")
DNS_NAME: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_RESOURCE = re.compile(f"{DNS_NAME}/{_PART}")
_LABEL = rf"(?:{DNS_NAME}/)?{_PART}\Z"

_Count = Annotated[int, Meta(ge=1, le=1024)]
_Value = Annotated[str, Meta(pattern=rf"^(?:{_PART})?\Z")]
_NodeLabel = Annotated[
    str, Meta(max_length=317, pattern=rf"^(?!node-restriction\.kubernetes\.io/){_LABEL}")
]
_Taint = Annotated[
    str, Meta(max_length=317, pattern=rf"^(?!(?:node-role|node)\.kubernetes\.io/){_LABEL}")
]


def _check_resource(resource: str) -> None:
    domain, _, name = resource.partition("/")
    why = ""
    if not _RESOURCE.fullmatch(resource):
        why = "is not the name of an extended resource, such as nvidia.com/gpu"
    elif domain.endswith("kubernetes.io") and not resource.startswith(DEVICE_CLASS):
        why = f"belongs to Kubernetes itself; only {DEVICE_CLASS}CLASS can be used"
    elif domain.startswith("requests."):
        why = "is the name of a quota"
    elif domain in {names.ACCELERATOR_DOMAIN, names.DOMAIN} or name.startswith(("af-", "region-")):
        why = "is a name that accelbind rewrites or serves; use an AcceleratorFunction for FPGAs"
    if why:
        raise ValueError(f"resource {quote(resource)} {why}")


class _Target(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource: Annotated[str, Meta(max_length=317)] = ""
    claim_template: Annotated[str, Meta(max_length=253, pattern=rf"^(?:{DNS_NAME})?\Z")] = ""
    count: _Count = 1

    def __post_init__(self) -> None:
        if bool(self.resource) == bool(self.claim_template):
            raise ValueError("exactly one of resource and claimTemplate must be set")
        if self.resource:
            _check_resource(self.resource)
        elif self.count > MAX_CLAIMS:
            raise ValueError(f"count of a claimTemplate can be {MAX_CLAIMS} at most")

    @property
    def key(self) -> str:
        """The target as requests and messages name it."""
        return self.resource or CLAIM_TEMPLATE + self.claim_template


class Also(msgspec.Struct, frozen=True, gc=False):
    """A resource that is requested together with a name."""

    resource: Annotated[str, Meta(max_length=317)]
    count: _Count = 1
    per: Literal["Unit", "Container"] = "Unit"
    """Whether each unit of the name needs so many, or the container does."""

    def __post_init__(self) -> None:
        _check_resource(self.resource)


class _Variable(msgspec.Struct, frozen=True, gc=False):
    name: Annotated[str, Meta(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]{0,62}\Z")]
    value: Annotated[str, Meta(max_length=1024)]

    def __post_init__(self) -> None:
        if is_reserved_variable(self.name):
            starts = listing(_RESERVED_VARIABLES, last="or")
            reserved = f"is reserved, as PATH and all names that start with {starts}"
            raise ValueError(f"name {quote(self.name)} {reserved}")
        if "$(" in self.value:
            raise ValueError("value contains $(, which Kubernetes would replace")


class _Tolerated(msgspec.Struct, frozen=True, gc=False):
    key: _Taint
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    operator: Literal["Equal", "Exists"] = "Equal"
    value: _Value = ""

    def __post_init__(self) -> None:
        if self.value and self.operator == "Exists":
            raise ValueError("value stands beside operator Exists: leave it out")


class AcceleratorSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The spec as it is written; fields that it hasn't are ignored."""

    target: _Target
    also_request: Annotated[tuple[Also, ...], Meta(max_length=4)] = ()
    env: Annotated[tuple[_Variable, ...], Meta(max_length=16)] = ()
    node_selector: Annotated[dict[_NodeLabel, _Value], Meta(max_length=8)] = {}
    tolerations: Annotated[tuple[_Tolerated, ...], Meta(max_length=8)] = ()
    runtime_class_name: Annotated[str, Meta(max_length=253, pattern=rf"^{DNS_NAME}\Z")] = ""

    def __post_init__(self) -> None:
        resources = [self.target.key, *[each.resource for each in self.also_request]]
        if len({*resources}) < len(resources):
            raise ValueError("target and alsoRequest name a resource twice")
        if len({each.name for each in self.env}) < len(self.env):
            raise ValueError("env sets a variable twice")


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A toleration, of a mapping or of a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Effects(msgspec.Struct, frozen=True, gc=False):
    """Additions to a pod that requests the name, besides the resource."""

    also: tuple[Also, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Variables, where the container doesn't set them."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    runtime_class: str = ""

    @property
    def size(self) -> int:
        """How many bytes of JSON a pod that requests the name may gain."""
        entries = (
            *[each.resource for each in self.also],
            *self.env,
            *self.node_selector,
            *[(each.key, each.value) for each in self.tolerations],
        )
        return ENTRY * len(entries) + len(msgspec.json.encode(entries))


def is_reserved_variable(name: str) -> bool:
    """Whether a container's variable of this name may only come from accelbind or the container."""
    return name.startswith(_RESERVED_VARIABLES) or name == "PATH"


def read_spec(spec: object) -> tuple[str, int, Effects]:
    """Return the target that a name stands for, how many a unit is, and what else it brings.

    Raises:
        InvalidName: no pod could use it; the message names the field.
    """
    try:  # not strict: the scalars of a folder are text
        read = msgspec.convert(without_nulls(spec), AcceleratorSpec, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidName(problem(error)) from error
    effects = Effects(
        read.also_request,
        tuple((each.name, each.value) for each in read.env),
        tuple(sorted(read.node_selector.items())),
        tuple(
            Toleration(each.key, each.operator, each.value, each.effect)
            for each in read.tolerations
        ),
        read.runtime_class_name,
    )
    return read.target.key, read.target.count, effects


def without_nulls(value: object, levels: int = _LEVELS) -> object:
    """Return an object without the fields that are null, as an API server stores it."""
    if levels and isinstance(value, dict):
        return {
            key: without_nulls(each, levels - 1) for key, each in value.items() if each is not None
        }
    if levels and isinstance(value, list):
        return [without_nulls(each, levels - 1) for each in value]
    return value


def problem(error: msgspec.ValidationError, root: str = "spec") -> str:
    """Return what is wrong with an object, and where in it."""
    what, _, where = str(error).partition(" - at ")
    what = re.sub(r" matching regex .*", " that Kubernetes allows there", what, flags=re.DOTALL)
    return f"{(where or '$').replace('`', '').replace('$', root)}: {plain(what, 300)}"
