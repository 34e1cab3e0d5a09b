"""The metadata of a claim's devices, which its containers read: a file for each request.

The format and the paths are those of KEP-5304, `k8s.io/dynamic-resource-allocation/api/metadata`:
the same object once for each version, the newest first. A reader uses the first one that it knows.
"""

import json
from typing import Any, Final

from plugin.dra.claims import ClaimRef
from plugin.dra.slices import typed_attributes
from plugin.dra.wants import Want
from services.devices.dra import DRIVER

VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
FOLDER: Final = "/var/run/kubernetes.io/dra-device-attributes"


def path_in_container(claim: ClaimRef, pod_claim: str, request: str) -> str:
    """The path of the file of a request; `pod_claim` as in `AllocatedClaim`."""
    place = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim.name}"
    return f"{FOLDER}/{place}/{request}/{DRIVER}-metadata.json"


def describe_request(claim: ClaimRef, pod_claim: str, want: Want, *, pool: str) -> bytes:
    """The file of a request, whose devices are in a pool."""
    # It doesn't change as long as the claim is prepared, so its generation is the first.
    metadata = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1}
    devices = [
        {"driver": DRIVER, "pool": pool, "name": name, "attributes": typed_attributes(attributes)}
        for name, attributes in zip(want.devices, want.attributes, strict=True)
    ]
    content: dict[str, Any] = {"metadata": metadata}
    if pod_claim:
        content["podClaimName"] = pod_claim
    content["requests"] = [{"name": want.reference, "devices": devices}]
    objects = ({"kind": "DeviceMetadata", "apiVersion": each} | content for each in VERSIONS)
    return "".join(f"{json.dumps(each)}\n" for each in objects).encode()
