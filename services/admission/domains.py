"""Rules for domains of names, and for guarded resources."""

import re
from collections.abc import Iterable

from services.mappings.accelerator import CLAIM, CLAIM_TEMPLATE, DEVICE_CLASS, DNS_NAME

_PATTERN = re.compile(r"[^/*]+/([-A-Za-z0-9_.]+\*?|\*)")
_RESERVED = ("kubernetes.io", "k8s.io")


def check_names(
    domains: Iterable[str], accelerator_domains: Iterable[str], guard: Iterable[str]
) -> None:
    """Check domains of names and what is guarded.

    Raises:
        ValueError: one can't be that, or a domain has two meanings; the message names the flag.
    """
    for flag, named in (("--domain", domains), ("--accelerator-domain", accelerator_domains)):
        for domain in named:
            _check_domain(flag, domain)
    if both := {*domains} & {*accelerator_domains}:
        raise ValueError(
            f"{min(both)} is in --domain and in --accelerator-domain: a domain has names of FPGAs"
            " or of Accelerators"
        )
    prefixes = tuple(f"{domain}/" for domain in (*domains, *accelerator_domains))
    for pattern in guard:
        if not _PATTERN.fullmatch(pattern):
            raise ValueError(
                f"--guard: {pattern!r:.80} is not a resource such as nvidia.com/gpu or nvidia.com/*"
            )
        if pattern.startswith(prefixes):
            raise ValueError(
                f"--guard {pattern}: this domain has names that are always reviewed; guard what"
                " Accelerators stand for"
            )
        if not pattern.startswith((DEVICE_CLASS, CLAIM_TEMPLATE, CLAIM)):
            _check_domain("--guard", pattern.partition("/")[0])


def _check_domain(flag: str, domain: str) -> None:
    if not re.fullmatch(DNS_NAME, domain) or len(domain) > 253:
        raise ValueError(f"{flag}: {domain!r:.80} is not a DNS name")
    if domain in _RESERVED or domain.endswith(tuple(f".{name}" for name in _RESERVED)):
        raise ValueError(f"{flag}: resources of {domain} belong to Kubernetes itself")
