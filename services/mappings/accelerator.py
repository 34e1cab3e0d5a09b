"""The spec of an Accelerator: any resource of a node, and what a pod that requests it gets as well.

The schema in ``manifests/crd/accelerators.yaml`` refuses the same, where an API server checks it.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from services import names
from services.process.errors import InvalidName
from services.process.text import listing, quote

MAX_COUNT: Final = 1024
MAX_ALSO, MAX_ENV, MAX_SELECTOR, MAX_TOLERATIONS = 4, 16, 8, 8
MAX_KEY, MAX_VALUE, MAX_LABEL = 317, 1024, 63
ENTRY: Final = 64
"""Bytes that a variable, label, toleration or further resource counts besides its own."""

DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix of the resource that stands for a DeviceClass."""

_RESERVED_VARIABLES = ("FPGA_", "ACCELBIND_", "ACCELERATOR_", "NVIDIA_", "LD_")
_RESERVED_TAINTS = ("node-role.kubernetes.io/", "node.kubernetes.io/")
_RESTRICTED_LABELS = "node-restriction.kubernetes.io/"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_RESOURCE = re.compile(f"{_DOMAIN}/{_PART}")
_LABEL = re.compile(f"(?:{_DOMAIN}/)?{_PART}")
_LABEL_VALUE = re.compile(f"(?:{_PART})?")
_DIGITS = re.compile(r"[0-9]{1,4}")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,62}")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class Also(msgspec.Struct, frozen=True, gc=False):
    """A resource that is requested together with a name."""

    resource: str
    count: int
    per_unit: bool
    """Whether each unit of the name needs so many; else the container does."""


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A toleration, of a mapping or of a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Effects(msgspec.Struct, frozen=True, gc=False):
    """What a pod that requests the name gets, besides the resource."""

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


Spec = dict[str, object]


def read_target(spec: Spec) -> tuple[str, int]:
    """Return the resource that a name stands for, and how many of it a unit is.

    Raises:
        InvalidName: no pod could use it; the message names the field.
    """
    target = spec.get("target")
    if not isinstance(target, dict):
        raise InvalidName("spec.target is missing or not an object")
    return _resource(target, "spec.target"), _count(target, "spec.target")


def read_effects(spec: Spec) -> Effects:
    """Return what else a pod gets; raises as `read_target`."""
    also = tuple(_also(each, at) for each, at in _objects(spec, "alsoRequest", MAX_ALSO))
    target = spec.get("target")
    resource = target.get("resource") if isinstance(target, dict) else None
    if len({resource, *(each.resource for each in also)}) <= len(also):
        raise InvalidName("spec.target and spec.alsoRequest name a resource twice")
    env = tuple(_variable(each, at) for each, at in _objects(spec, "env", MAX_ENV))
    if len(dict(env)) < len(env):
        raise InvalidName("spec.env sets a variable twice")
    listed = _objects(spec, "tolerations", MAX_TOLERATIONS)
    tolerations = tuple(_toleration(each, at) for each, at in listed)
    return Effects(also, env, _selector(spec), tolerations, _runtime_class(spec))


def _objects(spec: Spec, field: str, most: int) -> Iterator[tuple[Spec, str]]:
    """Yield the objects of a list, each with its path."""
    value = spec.get(field)
    if value is None:
        return
    if not isinstance(value, list) or len(value) > most:
        raise InvalidName(f"spec.{field} is not a list of at most {most}")
    for number, each in enumerate(value):
        if not isinstance(each, dict):
            raise InvalidName(f"spec.{field}[{number}] is not an object")
        yield each, f"spec.{field}[{number}]"


def _text(obj: Spec, field: str, at: str, *, default: str | None = None) -> str:
    value = obj.get(field, default)
    if not isinstance(value, str):
        raise InvalidName(f"{at}.{field} is missing or not a string")
    return value


def _resource(obj: Spec, at: str) -> str:
    resource = _text(obj, "resource", at)
    domain, _, name = resource.partition("/")
    why = ""
    if len(resource) > MAX_KEY or not _RESOURCE.fullmatch(resource):
        why = "is not the name of an extended resource, such as nvidia.com/gpu"
    elif domain.endswith("kubernetes.io") and not resource.startswith(DEVICE_CLASS):
        why = f"belongs to Kubernetes itself; only {DEVICE_CLASS}CLASS can be used"
    elif domain.startswith("requests."):
        why = "is the name of a quota"
    elif domain in {names.ACCELERATOR_DOMAIN, names.DOMAIN} or name.startswith(("af-", "region-")):
        why = "is a name that accelbind rewrites or serves; use an AcceleratorFunction for FPGAs"
    if why:
        raise InvalidName(f"{at}.resource {quote(resource)} {why}")
    return resource


def _count(obj: Spec, at: str) -> int:
    count = obj.get("count", 1)
    if isinstance(count, str) and _DIGITS.fullmatch(count):  # the scalars of a folder are text
        count = int(count)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise InvalidName(f"{at}.count is not a whole number from 1 to {MAX_COUNT}")
    return count


def _also(obj: Spec, at: str) -> Also:
    per = _text(obj, "per", at, default="Unit")
    if per not in {"Unit", "Container"}:
        raise InvalidName(f"{at}.per must be Unit or Container, not {quote(per)}")
    return Also(_resource(obj, at), _count(obj, at), per == "Unit")


def is_reserved_variable(name: str) -> bool:
    """Whether a container's variable of this name may only come from accelbind or the container."""
    return name.startswith(_RESERVED_VARIABLES) or name == "PATH"


def _variable(obj: Spec, at: str) -> tuple[str, str]:
    name, value = _text(obj, "name", at), _text(obj, "value", at)
    if not _VARIABLE.fullmatch(name):
        raise InvalidName(f"{at}.name {quote(name)} is not the name of a variable")
    if is_reserved_variable(name):
        starts = listing(_RESERVED_VARIABLES, last="or")
        reserved = f"is reserved, as PATH and all names that start with {starts}"
        raise InvalidName(f"{at}.name {quote(name)} {reserved}")
    if len(value) > MAX_VALUE or "$(" in value:
        raise InvalidName(f"{at}.value is longer than {MAX_VALUE} characters or contains $(")
    return name, value


def _selector(spec: Spec) -> tuple[tuple[str, str], ...]:
    selector = spec.get("nodeSelector")
    if selector is None:
        return ()
    if not isinstance(selector, dict) or len(selector) > MAX_SELECTOR:
        raise InvalidName(f"spec.nodeSelector is not an object of at most {MAX_SELECTOR} labels")
    for key, value in selector.items():
        if len(key) > MAX_KEY or not _LABEL.fullmatch(key) or key.startswith(_RESTRICTED_LABELS):
            raise InvalidName(f"spec.nodeSelector: {quote(key)} is not a label of nodes")
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise InvalidName(f"spec.nodeSelector: {quote(key)} has no value of a label")
    return tuple(sorted(selector.items()))


def _toleration(obj: Spec, at: str) -> Toleration:
    key, effect = _text(obj, "key", at), _text(obj, "effect", at)
    operator = _text(obj, "operator", at, default="Equal")
    value = _text(obj, "value", at, default="")
    if len(key) > MAX_KEY or not _LABEL.fullmatch(key) or key.startswith(_RESERVED_TAINTS):
        raise InvalidName(f"{at}.key {quote(key)} is not a taint that a mapping may tolerate")
    if effect not in _EFFECTS or operator not in {"Equal", "Exists"}:
        raise InvalidName(f"{at}: effect or operator is not one of Kubernetes'")
    if not _LABEL_VALUE.fullmatch(value) or (value and operator == "Exists"):
        raise InvalidName(f"{at}.value is no value of a taint, or stands beside Exists")
    return Toleration(key, operator, value, effect)


def _runtime_class(spec: Spec) -> str:
    name = spec.get("runtimeClassName")
    if name is None:
        return ""
    if not isinstance(name, str) or len(name) > 253 or not re.fullmatch(_DOMAIN, name):
        raise InvalidName("spec.runtimeClassName is not the name of a RuntimeClass")
    return name
