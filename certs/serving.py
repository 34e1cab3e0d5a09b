"""The serving pair: what is wrong with the one in the Secret, and whether it is due. Pure.

Broken is a pair that no API server would accept, or no webhook could load: it is replaced at once.
One that is due serves on until it can be replaced: at once if the CA that signs now has signed it
too, else when the bundle with that CA has settled in the webhook configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509

from certs.authority import certificate_pem, issue_serving, key_pem
from certs.reading import (
    UnusableKey,
    certificates_in,
    is_valid,
    lacking_names,
    public_half,
    renewal_time,
    serves,
    signer_of,
    subject_text,
)
from certs.trust import Rules, Trust

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
KEYS: Final = frozenset({CERTIFICATE, KEY, BUNDLE})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done about a serving pair.

    Attributes:
        broken: Why nobody can use it; empty if it serves.
        due: Why it is to be renewed; empty if it isn't.
        moves: Whether its successor is of another CA.
        stranger: Whether it is broken only for its CA, which we don't know.
    """

    broken: str = ""
    due: str = ""
    moves: bool = False
    stranger: bool = False


def chain_of(data: Mapping[str, bytes]) -> tuple[x509.Certificate, ...]:
    """The serving certificate and what stands between it and its CA; empty if there is none."""
    return certificates_in(data.get(CERTIFICATE, b"")).all


def live_chain(data: Mapping[str, bytes], now: datetime) -> tuple[x509.Certificate, ...]:
    """As `chain_of`, but empty where no webhook could be showing it with success."""
    chain = chain_of(data)
    return chain if chain and not _unusable(chain, data.get(KEY, b""), now) else ()


def judge(data: Mapping[str, bytes], trust: Trust, rules: Rules, now: datetime) -> Verdict:
    """What is to be done about the pair in the Secret."""
    chain = chain_of(data)
    if not chain:
        return Verdict(broken="there is no serving certificate")
    if problem := _unusable(chain, data.get(KEY, b""), now):
        return Verdict(broken=problem)
    signer = signer_of(chain, trust.authorities)
    if signer is None:
        issuer = subject_text(chain[0].issuer)
        said = f"the serving certificate is of a CA that is not ours ({issuer})"
        return Verdict(broken=said, stranger=True)
    moves = signer_of(chain, (trust.authority.certificate,)) is None
    return Verdict(due=_due(chain[0], rules, now, moves=moves), moves=moves)


def new_pair(trust: Trust, rules: Rules, now: datetime) -> tuple[dict[str, bytes], datetime]:
    """A new serving pair as it stands in the Secret, and when it ends."""
    made = issue_serving(trust.authority, rules.names, now, rules.lifetime)
    data = {
        CERTIFICATE: certificate_pem(made.certificate),
        KEY: key_pem(made.key),
        BUNDLE: trust.bundle,
    }
    return data, made.certificate.not_valid_after_utc


def key_problem(certificate: x509.Certificate, key_text: bytes) -> str:
    """Why a key doesn't serve for a certificate; empty if it does."""
    if not key_text.strip():
        return "the serving certificate has no key"
    try:
        public = public_half(key_text)
    except UnusableKey as error:
        return f"the serving certificate can't be used: {error}"
    if public is None:
        return "the serving certificate's key is garbled"
    if public != certificate.public_key():
        return "the serving certificate and its key are no pair"
    return ""


def _unusable(chain: tuple[x509.Certificate, ...], key_text: bytes, now: datetime) -> str:
    certificate = chain[0]
    if problem := key_problem(certificate, key_text):
        return problem
    if not serves(certificate):
        return "the serving certificate may not be a server's (extendedKeyUsage)"
    if not is_valid(certificate, now):
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return f"the serving certificate counts from {begins:%F %T} to {ends:%F %T}, and not now"
    return ""


def _due(certificate: x509.Certificate, rules: Rules, now: datetime, *, moves: bool) -> str:
    if moves:
        return "the CA has changed"
    if lacking := lacking_names(certificate, rules.names):
        return f"it lacks {', '.join(lacking)}"
    due = renewal_time(certificate, rules.share)
    return f"it is due since {due:%F %T}" if now >= due else ""
