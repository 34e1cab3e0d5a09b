"""Check that reviews are answered: send a small review through the real function."""

from typing import Final

import msgspec

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.mappings.index import build_index
from services.mappings.kinds import ACCELERATOR_FUNCTION, FPGA_VERSION
from services.mappings.model import parse
from services.names import DOMAIN, function_name
from services.pods.reasons import ReviewOutcome

_NAME: Final = "self-check"
_INTERFACE: Final = "ce48969398f05f33946d560708be108a"
_AFU: Final = "d8424dc4a4a3c413f89e433683f9040b"
_RESOURCE: Final = f"{DOMAIN}/{function_name(_INTERFACE, _AFU)}"
_MAPPING: Final = {
    "apiVersion": FPGA_VERSION,
    "kind": ACCELERATOR_FUNCTION,
    "metadata": {"name": _NAME, "namespace": _NAME},
    "spec": {"interfaceId": _INTERFACE, "afuId": _AFU, "mode": "af"},
}
# Its own: whether the cluster's mappings are loaded is no reason to restart the process.
_INDEX: Final = build_index([parse(_MAPPING)])
_POLICY: Final = Policy()
_CONTAINER: Final = {"name": "c", "resources": {"limits": {f"{DOMAIN}/{_NAME}": "1"}}}
_REVIEW: Final = msgspec.json.encode(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": _NAME,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": _NAME,
            "object": {"metadata": {"name": _NAME}, "spec": {"containers": [_CONTAINER]}},
        },
    }
)


def check_ourselves() -> str:
    """Mutate a small pod; return what is wrong, or an empty text."""
    result = answer(_REVIEW, _INDEX, _POLICY, validating=False)
    resources = [rewrite.resource for rewrite in result.rewrites]
    if result.outcome is ReviewOutcome.PATCHED and resources == [_RESOURCE]:
        return ""
    return f"a review of our own was answered wrongly ({result.error!r:.200})"
