"""What may be a domain of names, and what may be guarded: the webhook and the command line ask."""

import re
from collections.abc import Iterable

from services.mappings.accelerator import DEVICE_CLASS

_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PATTERN = re.compile(r"[^/*]+/([-A-Za-z0-9_.]+\*?|\*)")
_RESERVED = ("kubernetes.io", "k8s.io")


def check_domains(domains: Iterable[str]) -> None:
    """Check domains of names.

    Raises:
        ValueError: one can't be a domain of names.
    """
    for domain in domains:
        if not _DOMAIN.fullmatch(domain) or len(domain) > 253:
            raise ValueError(f"{domain!r:.80} is not a DNS name")
        if domain in _RESERVED or domain.endswith(tuple(f".{name}" for name in _RESERVED)):
            raise ValueError(f"resources of {domain} belong to Kubernetes itself")


def check_guard(patterns: Iterable[str]) -> None:
    """Check what is guarded; raises as `check_domains`."""
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(
                f"{pattern!r:.80} is not a resource such as nvidia.com/gpu or nvidia.com/*"
            )
        if not pattern.startswith(DEVICE_CLASS):
            check_domains([pattern.partition("/")[0]])


def check_together(
    domains: Iterable[str], accelerator_domains: Iterable[str], guard: Iterable[str]
) -> None:
    """Check that no domain has two meanings; raises as `check_domains`."""
    if both := {*domains} & {*accelerator_domains}:
        raise ValueError(
            f"{min(both)} is in --domain and in --accelerator-domain: a domain has names of FPGAs"
            " or of Accelerators"
        )
    prefixes = tuple(f"{domain}/" for domain in (*domains, *accelerator_domains))
    for pattern in guard:
        if pattern.startswith(prefixes):
            raise ValueError(
                f"--guard {pattern}: this domain has names that are always reviewed; guard what"
                " Accelerators stand for"
            )
