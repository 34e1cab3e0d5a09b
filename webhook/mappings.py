"""The endpoints for mappings: what `webhook.admission` asks instead of judging a pod.

`/validate-mapping` refuses an AcceleratorFunction or FpgaRegion that no pod could use, with the
index that the pods are judged by; `/mutate-mapping` notes its physical resource in an annotation.
They take the same way as pods do: the same limits, figures and log.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from services.admission.mapping_review import note, validate
from services.admission.review import Answer
from services.mappings.model import MappingIndex

Judge: TypeAlias = Callable[[bytes, MappingIndex], Answer]

VALIDATE_MAPPING: Final = "validate-mapping"
MUTATE_MAPPING: Final = "mutate-mapping"
ENDPOINTS: Final = {
    "/validate-mapping": VALIDATE_MAPPING,
    "/mutate-mapping": MUTATE_MAPPING,
}
"""Paths and what they do."""


def _note(body: bytes, _index: MappingIndex) -> Answer:
    return note(body)


JUDGES: Final[Mapping[str, Judge]] = {VALIDATE_MAPPING: validate, MUTATE_MAPPING: _note}
"""Who answers a review at an endpoint that isn't for pods."""

DESCRIPTIONS: Final = {
    VALIDATE_MAPPING: (
        "Check a mapping",
        (
            "Refuses an AcceleratorFunction or FpgaRegion that no pod could use, or whose name the "
            "other kind has in its namespace."
        ),
    ),
    MUTATE_MAPPING: (
        "Note what a mapping stands for",
        "Answers with a JSON Patch that writes the physical resource into an annotation.",
    ),
}
"""What `/openapi.json` says of them: summary and description."""
