"""What an error of the API server means for somebody who goes on asking."""

from typing import Final

from services.kube.client import BadStatus, Expired, TooLong
from services.process.errors import ClusterError

PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that say nothing against what was asked for, or who asks."""
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409


def will_pass(error: ClusterError) -> bool:
    """Whether the same question by the same client may be answered another time."""
    if isinstance(error, BadStatus):
        return error.status in PASSING
    return not isinstance(error, (Expired, TooLong))


def may_be_ours(error: ClusterError) -> bool:
    """Whether credentials or certificates that have changed would explain an error."""
    if isinstance(error, BadStatus):
        return error.status == UNAUTHORIZED
    return will_pass(error)


def may_be_elsewhere(error: ClusterError) -> bool:
    """Whether another kubeconfig would explain an error: other credentials, or another server."""
    if isinstance(error, BadStatus):
        return error.status in {UNAUTHORIZED, FORBIDDEN, NOT_FOUND}
    return may_be_ours(error)


def asked_to_wait(error: ClusterError) -> float:
    """Seconds that the server asks us to wait; 0 if it doesn't."""
    return error.retry_after if isinstance(error, BadStatus) else 0.0
