"""AdmissionReviews for the webhook's tests, and how to read its answers."""

import base64
import json
from typing import Any

from tests.services.building import AF_NLB0, ARRIA, NLB0

INTERFACE, AFU, RESOURCE = ARRIA, NLB0, AF_NLB0
NAME = "arria10-nlb0"
LOGICAL = f"fpga.intel.com/{NAME}"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def pod(resource: str = LOGICAL, count: object = "1", **container: Any) -> dict[str, Any]:
    """A pod whose only container asks for a resource."""
    asked = {resource: count, "cpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "nlb", "namespace": "default", "labels": {"app": "nlb"}},
        "spec": {
            "containers": [
                {
                    "name": "c0",
                    "image": "registry.example/nlb:1",
                    "env": [{"name": "A", "value": '"'}],
                    "resources": {"limits": asked, "requests": asked},
                    **container,
                }
            ]
        },
    }


def review(object_: object = None, **request: object) -> dict[str, Any]:
    """An AdmissionReview of a pod's creation."""
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "nlb",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "kubernetes-admin"},
            "object": pod() if object_ is None else object_,
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


def body(object_: object = None, **request: object) -> bytes:
    """The same as bytes."""
    return json.dumps(review(object_, **request)).encode()


def response_of(answer: bytes, uid: str = UID) -> dict[str, Any]:
    """The response in an answer, once everything around it has been checked."""
    found = json.loads(answer)
    assert found["kind"] == "AdmissionReview"
    assert found["apiVersion"] == "admission.k8s.io/v1"
    response: dict[str, Any] = found["response"]
    assert response["uid"] == uid
    assert isinstance(response["allowed"], bool)
    return response


def patch_of(answer: bytes, uid: str = UID) -> list[dict[str, Any]]:
    """The JSON Patch of an answer; empty if it has none."""
    response = response_of(answer, uid)
    assert response["allowed"] is True
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    return operations
