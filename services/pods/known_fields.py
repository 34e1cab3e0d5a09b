"""Fields of a manifest that Kubernetes does not know, on the way to `resources`.

Otherwise `resource:` for `resources:` would look like a pod that asks for nothing. The API server
ignores such a field with a warning, and kubectl refuses it.
"""

import difflib
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from services.pods.manifests import FoundPod
from services.process.text import plain, quote, words

FieldPlace: TypeAlias = tuple[str, object, frozenset[str]]
"""A path, what is there, and the fields that an object there may have."""


VERSION: Final = "1.36"
"""Of Kubernetes, whose fields these are (https://kubernetes.io/docs/reference/kubernetes-api/)."""

_POD: Final = words("apiVersion kind metadata spec status")
_TEMPLATE: Final = words("metadata spec")
_SPEC: Final = words("""
    activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
    enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers
    hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead
    preemptionPolicy priority priorityClassName readinessGates resourceClaims resources
    restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup securityContext
    serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
    terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef
""")
_CONTAINER: Final = words("""
    args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports
    readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext
    startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices
    volumeMounts workingDir
""")
_RESOURCES: Final = words("claims limits requests")
_CONTAINERS: Final = ("initContainers", "containers")


def manifest_problems(found: FoundPod) -> Iterator[str]:
    """Yield a sentence for each unknown field of a pod, and for what it cannot be without."""
    root = f"{found.template_at}." if found.template_at else ""
    for path, value, known in _places(found, root):
        for name in value if isinstance(value, dict) else ():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                meant = f'; did you mean "{near[0]}"?' if near else ""
                text = plain(f"{path}{name}", 200)
                yield f"Kubernetes {VERSION} has no field {quote(text, 200)}{meant}"
    yield from null_quantities(found)
    if found.pod.spec is None or not found.pod.spec.containers:
        yield f"{root}spec{'' if found.pod.spec is None else '.containers'} is missing"


def null_quantities(found: FoundPod) -> Iterator[str]:
    """Yield a sentence for each quantity that is null, as templates of Helm make them."""
    root = f"{found.template_at}." if found.template_at else ""
    for path, value, known in _places(found, root):
        for part in ("limits", "requests") if known is _RESOURCES else ():
            quantities = value.get(part) if isinstance(value, dict) else None
            for key, quantity in quantities.items() if isinstance(quantities, dict) else ():
                if quantity is None:
                    yield f"{path}{part} has null for {plain(key)}, which Kubernetes reads as 0"


def _places(found: FoundPod, root: str) -> Iterator[FieldPlace]:
    """Yield the objects whose fields are checked."""
    spec: Any = found.manifest.get("spec") or {}  # an object: `found.pod` was read from it
    yield root, found.manifest, _TEMPLATE if root else _POD
    yield f"{root}spec.", spec, _SPEC
    yield f"{root}spec.resources.", spec.get("resources"), _RESOURCES
    for group in _CONTAINERS:
        for number, container in enumerate(spec.get(group) or ()):
            path = f"{root}spec.{group}[{number}]."
            yield path, container, _CONTAINER
            yield f"{path}resources.", container.get("resources"), _RESOURCES
