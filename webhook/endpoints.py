"""The admission endpoints: their paths, functions and descriptions for OpenAPI."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from services.admission import mapping_review
from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.admission.review import ReviewResponse
from services.mappings.index import MappingIndex

VALIDATE_MAPPING: Final = "validate-mapping"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint.

    Attributes:
        name: Its metric label.
        subject: What it reviews, for log lines: `pod` or `mapping`.
        review: Answers the bytes of a review; raises `InvalidReview`.
        summary: For OpenAPI.
        description: For OpenAPI.
    """

    name: str
    subject: str
    review: Callable[[bytes, MappingIndex, Policy], ReviewResponse]
    summary: str
    description: str


_MUTATE: Final = Endpoint(
    "mutate",
    "pod",
    partial(answer, validating=False),
    "Rewrite a pod",
    "Answers with a JSON Patch, or a refusal that says what to do.",
)

ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "/mutate": _MUTATE,
    "/pods": _MUTATE,
    "/validate": Endpoint(
        "validate",
        "pod",
        partial(answer, validating=True),
        "Check a pod after all mutation",
        "Refuses a pod that `/mutate` would still have to change.",
    ),
    "/validate-mapping": Endpoint(
        VALIDATE_MAPPING,
        "mapping",
        lambda body, index, _policy: mapping_review.validate(body, index),
        "Check a mapping",
        (
            "Refuses an AcceleratorFunction or FpgaRegion that no pod could use, or whose name the "
            "other kind has in its namespace."
        ),
    ),
    "/mutate-mapping": Endpoint(
        "mutate-mapping",
        "mapping",
        lambda body, _index, _policy: mapping_review.note(body),
        "Annotate a mapping with its resource",
        "Answers with a JSON Patch that writes the physical resource into an annotation.",
    ),
}
"""By path; webhook configurations of the Intel webhook use `/pods`."""
