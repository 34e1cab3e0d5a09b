"""What a real API server does to a pod besides storing it: defaults, and checks of resources.

Only what the suite or its clients can see: the defaults of the recorded reviews, limits copied into
requests, the rules for extended resources. Quantities are stored as they are written.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from simulator.apiserver.resources import PODS
from simulator.apiserver.status import Cause, bad_request, invalid, invalid_value
from simulator.apiserver.wire import Json

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?:[eE]([+-]?\d{1,3})|([numkMGTPE]i?|))")
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NATIVE = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.*")
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_TOLERATIONS = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def containers_of(pod: Json) -> Iterator[tuple[str, Json]]:
    """All containers with their field paths, init containers first."""
    for group in ("initContainers", "containers"):
        for at, container in enumerate(pod["spec"].get(group) or []):
            yield f"spec.{group}[{at}]", container


def set_defaults(pod: Json) -> None:
    """Fill in the defaults of core/v1."""
    pod.setdefault("status", {})
    spec = pod.setdefault("spec", {})
    for _, container in containers_of(pod):
        _default_container(container)
    for name, value in _SPEC.items():
        spec.setdefault(name, value)


def _default_container(container: Json) -> None:
    tag = container.get("image", "").rpartition("/")[2]
    moving = tag.endswith(":latest") or (":" not in tag and "@" not in tag)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if moving else "IfNotPresent")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            probe |= _PROBE | probe
    resources = container.setdefault("resources", {})
    for name in ("limits", "requests"):
        if amounts := resources.get(name):
            resources[name] = {key: str(value) for key, value in amounts.items()}
    if limits := resources.get("limits"):
        resources["requests"] = dict(sorted((limits | resources.get("requests", {})).items()))


def admit(pod: Json) -> None:
    """What the built-in admission plugins add before any webhook: tolerations and priority."""
    spec = pod["spec"]
    spec["tolerations"] = [*spec.get("tolerations", []), *_TOLERATIONS]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validate(pod: Json) -> None:
    """Refuses a pod that a real API server would not store."""
    causes = [] if pod["spec"].get("containers") else [Cause("spec.containers", "Required value")]
    for path, container in containers_of(pod):
        if not _LABEL.fullmatch(name := container.get("name") or ""):
            causes.append(invalid_value(f"{path}.name", name, "must be an RFC 1123 label"))
        if not container.get("image"):
            causes.append(Cause(f"{path}.image", "Required value"))
        causes += _resource_causes(f"{path}.resources", container["resources"])
    if causes:
        raise invalid(PODS, pod["metadata"]["name"], causes)


def _resource_causes(path: str, resources: Json) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount_causes(f"{path}.{group}[{name}]", name, amount)
    for name, asked in requests.items():
        limit = limits.get(name)
        if limit is None:
            if is_extended(name):
                why = "Limit must be set for non overcommitable resources"
                yield Cause(f"{path}.limits", f"Required value: {why}")
        elif is_extended(name) and amount_of(asked) != amount_of(limit):
            why = f"must be equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", asked, why)
        elif amount_of(asked) > amount_of(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield invalid_value(f"{path}.requests", asked, why)


def _amount_causes(path: str, name: str, amount: str) -> Iterator[Cause]:
    if not _RESOURCE.fullmatch(name):
        yield invalid_value(path, name, "must be a qualified name")
    elif "/" not in name and not _NATIVE.fullmatch(name):
        why = "must be a standard resource type or fully qualified"
        yield invalid_value(path, name, why)
    value = amount_of(amount)
    if value < 0:
        yield invalid_value(path, amount, "must be greater than or equal to 0")
    if is_extended(name) and value.denominator != 1:
        yield invalid_value(path, amount, "must be an integer")


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one, which can't be overcommitted."""
    return "/" in name and "kubernetes.io/" not in name


def amount_of(quantity: object) -> Fraction:
    """The amount of a quantity; StatusError 400 for a text that is none."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        raise bad_request(f"quantities must be numbers with a suffix: {quantity!r}")
    digits, exponent, suffix = found.groups(default="")
    if suffix.endswith("i"):
        return Fraction(digits) * Fraction(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    power = _POWERS.get(suffix, 18)
    return Fraction(digits) * Fraction(10) ** int(exponent or power)
