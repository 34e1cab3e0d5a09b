"""The controller manager's part in Dynamic Resource Allocation.

Finalizers are not modelled: a claim that is in use can be deleted, as on a real cluster after
somebody has removed the finalizer.
"""

from collections.abc import Set as AbstractSet
from uuid import uuid4

from simulator.apiserver.pods import is_over
from simulator.apiserver.resources import CLAIMS, NODES, PODS, SLICES, TEMPLATES, Json
from simulator.apiserver.store import Store, stamped

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


def new_claim(pod: Json, prefix: str, spec: Json, annotations: dict[str, str]) -> Json:
    """A ResourceClaim that a pod owns, as a controller or the scheduler creates it."""
    owner = {"apiVersion": PODS.api_version, "kind": PODS.kind, "controller": True}
    owner |= {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    metadata = {
        "name": f"{prefix}{uuid4().hex[:5]}",
        "namespace": pod["metadata"]["namespace"],
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    head = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": stamped(metadata)}
    return head | {"spec": spec, "status": {}}


class ClaimController:
    """Brings claims and slices in line with pods, nodes and templates."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run_once(self) -> None:
        pods = [pod for pod in self._store.all(PODS) if not is_over(pod)]
        owners = {item["metadata"]["uid"] for item in (*pods, *self._store.all(NODES))}
        # Slices go with their Node, and claims with the pod for which they were made.
        for resource in (SLICES, CLAIMS):
            for item in tuple(self._store.all(resource)):
                references = item["metadata"].get("ownerReferences") or []
                if references and not owners & {each["uid"] for each in references}:
                    self._store.remove(resource, resource.path_of(item))
        for claim in tuple(self._store.all(CLAIMS)):
            self._release(claim, owners)
        for pod in pods:
            if pod["spec"].get("resourceClaims"):
                self._make_claims(pod)

    def _release(self, claim: Json, users: AbstractSet[str]) -> None:
        """Free a claim of pods that are gone; nobody's is not allocated."""
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        left = [each for each in reserved if each["uid"] in users]
        if len(left) < len(reserved):
            claim["status"] = status | {"reservedFor": left} if left else {}
            self._store.write(CLAIMS, claim)

    def _make_claims(self, pod: Json) -> None:
        metadata, statuses = pod["metadata"], list(pod["status"].get("resourceClaimStatuses") or [])
        made = {each["name"] for each in statuses}
        for entry in pod["spec"]["resourceClaims"]:
            named = entry.get("resourceClaimTemplateName")
            template = named and self._store.get(TEMPLATES, f"{metadata['namespace']}/{named}")
            if not template or entry["name"] in made:
                continue
            prefix = f"{metadata['name']}-{entry['name']}-"
            spec = template["spec"]["spec"]
            claim = new_claim(pod, prefix, spec, {POD_CLAIM: entry["name"]})
            self._store.write(CLAIMS, claim)
            name = claim["metadata"]["name"]
            statuses.append({"name": entry["name"], "resourceClaimName": name})
        if len(statuses) > len(made):
            pod["status"]["resourceClaimStatuses"] = statuses
            self._store.write(PODS, pod)
