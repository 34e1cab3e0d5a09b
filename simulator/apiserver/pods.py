"""Changes and checks of pods: defaults, resources, and their requests.

Of defaults and checks only what the suite or its clients can see, such as limits copied into
requests.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from services.pods.requests import parse_amount
from services.process.errors import InvalidQuantity
from simulator.apiserver.calls import bad_request, invalid
from simulator.apiserver.resources import PODS, Json

SCHEDULER = "default-scheduler"
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": SCHEDULER,
    "enableServiceLinks": True,
}
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
    pod.setdefault("status", {})
    spec = pod.setdefault("spec", {})
    for _, container in containers_of(pod):
        _default_container(container)
    for name, value in _SPEC.items():
        spec.setdefault(name, value)


def _default_container(container: Json) -> None:
    resources = container.setdefault("resources", {})
    for name in ("limits", "requests"):
        if amounts := resources.get(name):
            resources[name] = {key: str(value) for key, value in amounts.items()}
    if limits := resources.get("limits"):
        resources["requests"] = dict(sorted((limits | resources.get("requests", {})).items()))


def admit(pod: Json) -> None:
    """Additions of the built-in admission plugins, before any webhook: tolerations and priority."""
    spec = pod["spec"]
    spec["tolerations"] = [*spec.get("tolerations", []), *_TOLERATIONS]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validate(pod: Json) -> None:
    """Refuse a pod without containers or images, or with a quantity that is none."""
    missing = [] if pod["spec"].get("containers") else ["spec.containers"]
    for path, container in containers_of(pod):
        missing += [f"{path}.{field}" for field in ("name", "image") if not container.get(field)]
    if missing:
        causes = [f"{field}: Required value" for field in missing]
        raise invalid(PODS, pod["metadata"]["name"], causes)
    requests_of(pod)


def amount_of(quantity: object) -> Fraction:
    """The amount of a quantity; StatusError 400 for a text that is none."""
    try:
        return parse_amount(str(quantity))
    except InvalidQuantity as error:
        raise bad_request(str(error)) from error


# Requests

Amounts = Mapping[str, Fraction]


def requests_of(pod: Json) -> Amounts:
    """The units that a pod takes on its node, by resource.

    App containers and sidecars add up; an init container needs its own beside the sidecars started
    before it; the larger of both counts.
    """
    spec = pod["spec"]
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or []:
        asked = _requests(container)
        highest = _joined(max, highest, sum_of(sidecars, asked))
        if container.get("restartPolicy") == "Always":
            sidecars = sum_of(sidecars, asked)
    return _joined(max, highest, sum_of(sidecars, *map(_requests, spec["containers"])))


def _requests(container: Json) -> Amounts:
    asked = (container.get("resources") or {}).get("requests") or {}
    return {name: amount_of(amount) for name, amount in asked.items()}


def sum_of(*several: Amounts) -> Amounts:
    return _joined(lambda *amounts: sum(amounts, Fraction()), *several)


def _joined(join: Callable[..., Fraction], *several: Amounts) -> Amounts:
    names = {name for amounts in several for name in amounts}
    return {name: join(*(one.get(name, Fraction()) for one in several)) for name in names}


def is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")
