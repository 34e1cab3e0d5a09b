"""Check that reviews are answered: send a small review through the real function.

It uses its own mapping, so it does not depend on the cluster's mappings. Whether those are loaded
is part of readiness, and no reason to restart the process.
"""

import base64
from typing import Final

import msgspec

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.mappings.index import build_index
from services.mappings.model import ACCELERATOR_FUNCTION, API_VERSION, parse
from services.names import DOMAIN, function_name
from services.process.errors import InvalidReview

_UID: Final = "self-check"
_NAMESPACE: Final = "accelbind-self-check"
_NAME: Final = "self-check"
_INTERFACE: Final = "ce48969398f05f33946d560708be108a"
_AFU: Final = "d8424dc4a4a3c413f89e433683f9040b"
_RESOURCE: Final = f"{DOMAIN}/{function_name(_INTERFACE, _AFU)}"
_POLICY: Final = Policy()
_INDEX: Final = build_index(
    [
        parse(
            {
                "apiVersion": API_VERSION,
                "kind": ACCELERATOR_FUNCTION,
                "metadata": {"name": _NAME, "namespace": _NAMESPACE},
                "spec": {"interfaceId": _INTERFACE, "afuId": _AFU, "mode": "af"},
            }
        )
    ]
)
_LIMITS: Final = {f"{DOMAIN}/{_NAME}": "1"}
_REVIEW: Final = msgspec.json.encode(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": _UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": _NAMESPACE,
            "object": {
                "metadata": {"name": _NAME},
                "spec": {
                    "containers": [
                        {"name": "c", "resources": {"limits": _LIMITS, "requests": _LIMITS}}
                    ]
                },
            },
        },
    }
)


def check_ourselves() -> str:
    """Mutate a small pod; return what is wrong, or an empty text."""
    try:
        found = answer(_REVIEW, _INDEX, _POLICY, validating=False)
        response = msgspec.json.decode(found.body)["response"]
        patch = base64.b64decode(response["patch"]).decode()
    except (InvalidReview, msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        return f"a review of our own was not answered: {error!r:.200}"
    if (
        not response["allowed"]
        or response["uid"] != _UID
        or _RESOURCE.partition("/")[2] not in patch
    ):
        return "a review of our own was answered wrongly"
    return ""
