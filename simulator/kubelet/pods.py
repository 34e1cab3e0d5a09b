"""The parts of a pod that a kubelet acts on, read from the object that the API server holds."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.pods.quantity import parse_count
from services.process.errors import AskerError, InvalidQuantity

ALWAYS: Final = "Always"


class InvalidPod(AskerError):
    """A pod object that a kubelet could not run."""


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One variable of a container, in the order of its spec.

    Attributes:
        name: its name.
        value: its value as written; `$(OTHER)` is left as it is.
        source: the kind of `valueFrom` (`fieldRef`, `configMapKeyRef`, …), or empty. Such a
            variable has no value here, since nothing of this node resolves references.
    """

    name: str
    value: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a pod.

    Attributes:
        name: its name, unique in the pod.
        init: whether it stands under `initContainers`.
        sidecar: an init container that keeps running (`restartPolicy: Always`).
        limits: whole counts of extended resources by full name, in the order of the spec.
        env: its variables.
        image: as written.
    """

    name: str
    init: bool = False
    sidecar: bool = False
    limits: tuple[tuple[str, int], ...] = ()
    env: tuple[EnvVar, ...] = ()
    image: str = ""

    @property
    def runs_to_completion(self) -> bool:
        """Whether it is a plain init container, whose end the next container waits for."""
        return self.init and not self.sidecar

    @property
    def field_path(self) -> str:
        """Where events say that it is."""
        return f"spec.{'initContainers' if self.init else 'containers'}{{{self.name}}}"


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod that was bound to this node."""

    uid: str
    namespace: str
    name: str
    init_containers: tuple[ContainerSpec, ...]
    containers: tuple[ContainerSpec, ...]
    restart_policy: str = ALWAYS

    @property
    def all_containers(self) -> tuple[ContainerSpec, ...]:
        """Init containers first: the order in which a kubelet allocates."""
        return self.init_containers + self.containers

    @property
    def log_folder(self) -> str:
        """The name of its folder under /var/log/pods."""
        return f"{self.namespace}_{self.name}_{self.uid}"


def read_pod(pod: Mapping[str, Any]) -> PodSpec:
    """Reads a pod object.

    Args:
        pod: a decoded v1 Pod. Without a uid it gets one, without a namespace it is in `default`,
            as the API server would have done.
    """
    try:
        metadata, spec = pod["metadata"], pod["spec"]
        containers = tuple(_container(each, init=False) for each in spec["containers"])
        read = PodSpec(
            uid=str(metadata.get("uid") or uuid.uuid4()),
            namespace=str(metadata.get("namespace") or "default"),
            name=str(metadata["name"]),
            init_containers=tuple(
                _container(each, init=True) for each in spec.get("initContainers") or ()
            ),
            containers=containers,
            restart_policy=str(spec.get("restartPolicy") or ALWAYS),
        )
    except (KeyError, TypeError, AttributeError, InvalidQuantity) as error:
        raise InvalidPod(f"not a pod that can run: {error!r}") from error
    names = [each.name for each in read.all_containers]
    if not containers or len(set(names)) != len(names):
        raise InvalidPod(f"pod {read.name}: containers are missing or share a name")
    return read


def _container(container: Mapping[str, Any], *, init: bool) -> ContainerSpec:
    limits = (container.get("resources") or {}).get("limits") or {}
    return ContainerSpec(
        name=str(container["name"]),
        init=init,
        sidecar=init and container.get("restartPolicy") == ALWAYS,
        limits=tuple(
            (str(name), parse_count(value))
            for name, value in limits.items()
            if is_extended_resource(str(name))
        ),
        env=tuple(_env(container.get("env") or ())),
        image=str(container.get("image") or ""),
    )


def _env(variables: Iterable[Mapping[str, Any]]) -> Iterable[EnvVar]:
    for variable in variables:
        source = next(iter(variable.get("valueFrom") or {}), "")
        yield EnvVar(str(variable["name"]), str(variable.get("value") or ""), source)


def is_extended_resource(name: str) -> bool:
    """Whether a device plugin may own a resource of this name.

    It has a domain, none of Kubernetes' own, and no quota prefix (the rule of the API server's
    `IsExtendedResourceName`).
    """
    domain, slash, rest = name.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash and domain and rest) and not native and not name.startswith("requests.")
