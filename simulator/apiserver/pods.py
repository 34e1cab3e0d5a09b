"""What a real API server does to a pod besides storing it: defaults, system fields, validation.

Only what the suite or its clients can see: the defaults of the recorded reviews, quantities in
canonical form, limits copied into requests, the rules for extended resources with their texts.
Not modelled: service accounts and their token volumes, priority classes, runtime classes, pod
security, quotas, most field validation.
"""

from collections.abc import Iterator

from simulator.apiserver import names, quantities, status
from simulator.apiserver.quantities import NotAQuantity
from simulator.apiserver.shapes import without_empty
from simulator.apiserver.status import Cause
from simulator.apiserver.wire import Json

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def containers_of(pod: Json) -> Iterator[tuple[str, Json]]:
    """All containers with their field paths, init containers first."""
    spec = pod.get("spec") or {}
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for at, container in enumerate(spec.get(group) or []):
            yield f"spec.{group}[{at}]", container


def set_defaults(pod: Json) -> Json:
    """The pod with the defaults of core/v1."""
    pod.setdefault("metadata", {})
    pod.setdefault("status", {})
    spec = pod.setdefault("spec", {})
    for path, container in containers_of(pod):
        _default_container(container, path)
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("securityContext", {}),
        ("schedulerName", "default-scheduler"),
        ("enableServiceLinks", True),
    ):
        if spec.get(name) in (None, ""):
            spec[name] = value
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    return without_empty(pod)


def _default_container(container: Json, path: str) -> None:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2]
    moving = tag.endswith(":latest") or (":" not in tag and "@" not in tag)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if moving else "IfNotPresent")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for name in _PROBES:
        if probe := container.get(name):
            _default_probe(probe)
    for variable in container.get("env") or []:
        if reference := (variable.get("valueFrom") or {}).get("fieldRef"):
            reference.setdefault("apiVersion", "v1")
    resources = container.get("resources") or {}
    container["resources"] = resources
    limits = canonical_amounts(resources, "limits", f"{path}.resources.limits")
    requests = canonical_amounts(resources, "requests", f"{path}.resources.requests")
    if limits:
        resources["requests"] = dict(sorted((limits | requests).items()))


def canonical_amounts(holder: Json, name: str, path: str, kind: str = "Pod") -> Json:
    """Puts the quantities under `name` into canonical form, in place, and returns them."""
    amounts = holder.get(name) or {}
    try:
        result = {key: quantities.canonical(amounts[key]) for key in sorted(amounts)}
    except NotAQuantity as error:
        raise status.bad_request(
            f'{kind} in version "v1" cannot be handled as a {kind}: {path}: {error}'
        ) from error
    if name in holder:
        holder[name] = result
    return result


def _default_probe(probe: Json) -> None:
    if get := probe.get("httpGet"):
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)


def _default_volume(volume: Json) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if volume.get(name) is not None:
            volume[name].setdefault("defaultMode", 420)


def admit(pod: Json) -> None:
    """What the built-in admission plugins add before any webhook: tolerations and priority."""
    spec = pod["spec"]
    tolerations = spec.setdefault("tolerations", [])
    for taint in _TAINTS:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            tolerations.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _tolerates(toleration: Json, taint: str) -> bool:
    fits_key = toleration.get("key", "") in ("", taint)
    return fits_key and toleration.get("effect", "") in ("", "NoExecute")


def prepare(pod: Json) -> None:
    """What storing a new pod sets."""
    pod["metadata"]["generation"] = 1
    pod["status"] = {"phase": "Pending"}


def validate(pod: Json) -> None:
    """Refuses a pod that a real API server would not store."""
    metadata, spec = pod["metadata"], pod["spec"]
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(status.required("spec.containers"))
    seen: set[str] = set()
    for path, container in containers_of(pod):
        causes += _container_causes(path, container, seen)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        known = ("Always", "OnFailure", "Never")
        causes.append(status.unsupported("spec.restartPolicy", spec["restartPolicy"], known))
    if causes:
        raise status.invalid("", "Pod", metadata.get("name", ""), causes)


def _container_causes(path: str, container: Json, seen: set[str]) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield status.required(f"{path}.name")
    elif problem := names.label_problem(name):
        yield status.invalid_value(f"{path}.name", name, problem)
    elif name in seen:
        yield Cause(f"{path}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
    seen.add(name)
    if not container.get("image"):
        yield status.required(f"{path}.image")
    for at, variable in enumerate(container.get("env") or []):
        yield from _env_causes(f"{path}.env[{at}]", variable)
    yield from _resource_causes(f"{path}.resources", container.get("resources") or {})


def _env_causes(path: str, variable: Json) -> Iterator[Cause]:
    if not variable.get("name"):
        yield status.required(f"{path}.name")
    if variable.get("value") and variable.get("valueFrom"):
        why = "may not be specified when `value` is not empty"
        yield status.invalid_value(f"{path}.valueFrom", "", why)


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
                yield status.required(f"{path}.limits", why)
        elif is_extended(name) and asked != limit:
            why = f"must be equal to {name} limit of {limit}"
            yield status.invalid_value(f"{path}.requests", asked, why)
        elif quantities.parse(asked) > quantities.parse(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield status.invalid_value(f"{path}.requests", asked, why)


def _amount_causes(path: str, name: str, amount: str) -> Iterator[Cause]:
    if problem := names.qualified_problem(name):
        yield status.invalid_value(path, name, problem)
    elif "/" not in name and name not in _NATIVE and not name.startswith("hugepages-"):
        why = "must be a standard resource type or fully qualified"
        yield status.invalid_value(path, name, why)
    value = quantities.parse(amount)
    if value < 0:
        yield status.invalid_value(path, amount, "must be greater than or equal to 0")
    if is_extended(name) and value.denominator != 1:
        yield status.invalid_value(path, amount, "must be an integer")


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one, which can't be overcommitted."""
    return "/" in name and "kubernetes.io/" not in name
