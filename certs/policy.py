"""Decide which CA signs, which CAs are trusted, and when certificates are replaced. Pure.

A CA is replaced in steps, so that the bundle always trusts what a replica serves:

1. Its Secret and the bundle of the webhook configurations get the new CA beside the old one.
2. Once the bundle was read back from all configurations and `settle` has passed, the new CA signs
   the serving certificate.
3. Once that certificate is older than `overlap`, the other CAs leave the bundle.

The same rules repair damage, and adopt a CA that was put in by hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from certs.authority import KeyPair, create_authority, issue_serving
from certs.certificates import (
    UnusableKey,
    authority_error,
    bundle_pem,
    find_signer,
    is_authority,
    is_valid,
    issued_at,
    key_error,
    may_serve,
    may_sign,
    missing_names,
    read_certificates,
    read_signing_key,
    renewal_time,
    subject_text,
    unique,
)
from services.process.errors import CertificateError

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
OLD_CAS: Final = "old.crt"
"""Trusted CAs that sign no more; their keys are not kept."""
CA_KEYS: Final = frozenset({CA_CERTIFICATE, CA_KEY, OLD_CAS})
"""Our keys in the Secret of the CA."""

SERVING_CERTIFICATE: Final = "tls.crt"
SERVING_KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
SERVING_KEYS: Final = frozenset({SERVING_CERTIFICATE, SERVING_KEY, BUNDLE})
"""Our keys in the serving Secret."""

MOST_OLD: Final = 30
"""Old CAs in a bundle."""


@dataclass(frozen=True, slots=True)
class CertificatePolicy:
    """What certificates contain, how long they last, and how fast a CA is replaced."""

    names: tuple[x509.GeneralName, ...]
    lifetime: timedelta
    authority_lifetime: timedelta
    overlap: timedelta
    """Age of a serving certificate at which all replicas of the webhook have mounted it."""
    settle: timedelta
    """How long API servers take to know a bundle."""


@dataclass(frozen=True, slots=True)
class CaState:
    """The content of the CA's Secret: the pair that signs, and the other trusted CAs."""

    authority: KeyPair
    old: tuple[x509.Certificate, ...] = ()
    created: str = ""
    """Why another certificate signs from now on; empty if none does."""

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """All trusted CAs; the one that signs comes first."""
        return (self.authority.certificate, *self.old)

    @property
    def bundle(self) -> bytes:
        """The bundle for the webhook configurations."""
        return bundle_pem(self.authorities)

    def data(self) -> dict[str, bytes]:
        """The data of the Secret."""
        data = {CA_CERTIFICATE: self.authority.certificate_pem, CA_KEY: self.authority.key_pem}
        return data | {OLD_CAS: bundle_pem(self.old)} if self.old else data


def next_ca(
    data: Mapping[str, bytes],
    serving: x509.Certificate | None,
    configured: Sequence[x509.Certificate],
    policy: CertificatePolicy,
    now: datetime,
    *,
    force: bool = False,
) -> CaState:
    """The next state of the CA's Secret; `force` replaces a CA that is not due.

    `serving` is the certificate that can be in use; `configured` are the CAs in the webhook
    configurations.
    """
    authority, created = _signing_pair(data, policy, now, force=force)
    own = authority.certificate
    # A lost Secret, or certificates made by other means: what the configurations trust may serve.
    known = unique((*stored_authorities(data), *configured))
    old = [one for one in known if one != own and is_authority(one) and is_valid(one, now)]
    signer = find_signer(serving, (own, *old))
    # All replicas have a certificate of the CA that signs: nobody needs another.
    if serving is not None and signer == own and now - issued_at(serving) > policy.overlap:
        return CaState(authority, created=created)
    if signer is not None and signer != own:
        old.insert(0, signer)  # so that it is not among those that are too many
    # With the CA that signs, fewer than `read_certificates` reads.
    return CaState(authority, unique(old)[:MOST_OLD], created)


def stored_authorities(data: Mapping[str, bytes]) -> tuple[x509.Certificate, ...]:
    """The trusted CAs in the CA's Secret; the one that signs comes first."""
    texts = (data.get(CA_CERTIFICATE, b""), data.get(OLD_CAS, b""))
    return unique(one for text in texts for one in read_certificates(text))


def _signing_pair(
    data: Mapping[str, bytes], policy: CertificatePolicy, now: datetime, *, force: bool
) -> tuple[KeyPair, str]:
    """The pair that signs, and why it is not the one in the Secret."""
    certificates = read_certificates(data.get(CA_CERTIFICATE, b""))
    try:
        key = read_signing_key(data.get(CA_KEY, b""))
    except UnusableKey as error:
        # It belongs to somebody, who has no other copy perhaps: it is not overwritten.
        raise CertificateError(
            f"{error}, so it cannot sign: put in an unencrypted elliptic curve key and its"
            " certificate, or remove ca.key and ca.crt to get a new CA"
        ) from error
    lifetime = policy.authority_lifetime
    if not data.get(CA_KEY) and not data.get(CA_CERTIFICATE):
        return create_authority(now, lifetime), "the Secret holds no CA yet"
    if key is None:
        return create_authority(now, lifetime), "ca.key is missing or unreadable"
    if not certificates:  # with the same key, what it has signed stays trusted
        return create_authority(now, lifetime, key), "ca.crt is missing or unreadable"
    pair = KeyPair(certificates[0], key)
    if pair.certificate.public_key() == key.public_key() and not may_sign(pair.certificate):
        # Somebody's serving pair, put into the wrong Secret.
        raise CertificateError(
            "the certificate in ca.crt belongs to ca.key but is not a CA's (basicConstraints,"
            " keyUsage): put in a CA's, or remove ca.key and ca.crt to get a new CA"
        )
    reason = authority_error(pair, now) or ("requested" if force else "")
    due = renewal_time(pair.certificate)
    if not reason and now >= due:
        reason = f"the CA is due since {due:%F %T}"
    return (create_authority(now, lifetime), reason) if reason else (pair, "")


@dataclass(frozen=True, slots=True)
class PairStatus:
    """What is wrong with the serving pair in its Secret, if anything."""

    error: str = ""
    """Why no webhook can load it, or no API server accepts it: it is replaced at once."""
    due: str = ""
    """Why it is to be renewed; it serves until then."""
    untrusted: bool = False
    """Whether its only error is a CA that is neither ours nor in the configurations."""
    waits: bool = False
    """Whether a CA that has not signed the current one renews it, and so has to settle."""


def serving_certificate(data: Mapping[str, bytes]) -> x509.Certificate | None:
    """The serving certificate in a Secret; None if there is none."""
    return next(iter(read_certificates(data.get(SERVING_CERTIFICATE, b""))), None)


def usable_certificate(data: Mapping[str, bytes], now: datetime) -> x509.Certificate | None:
    """As `serving_certificate`, but None where no webhook can use the pair."""
    serving = serving_certificate(data)
    if serving is None or _pair_error(serving, data.get(SERVING_KEY, b""), now):
        return None
    return serving


def check_pair(
    data: Mapping[str, bytes], state: CaState, policy: CertificatePolicy, now: datetime
) -> PairStatus:
    """Check the serving pair in its Secret."""
    serving = serving_certificate(data)
    if serving is None:
        return PairStatus(error="there is no serving certificate")
    if error := _pair_error(serving, data.get(SERVING_KEY, b""), now):
        return PairStatus(error=error)
    signer = find_signer(serving, state.authorities)
    if signer is None:
        issuer = subject_text(serving.issuer)
        error = f"the serving certificate is from an unknown CA ({issuer})"
        return PairStatus(error=error, untrusted=True)
    if signer != state.authority.certificate:
        # API servers may not yet know the CA that would sign the next one.
        return PairStatus(due="the CA has changed", waits=True)
    # Names that it has beside the wanted ones are no reason: replicas of two versions would undo
    # each other's work.
    if missing := missing_names(serving, policy.names):
        return PairStatus(due=f"it lacks {', '.join(missing)}")
    due = renewal_time(serving)
    return PairStatus(due=f"it is due since {due:%F %T}" if now >= due else "")


def new_pair(
    state: CaState, policy: CertificatePolicy, now: datetime
) -> tuple[dict[str, bytes], datetime]:
    """The data of the serving Secret with a new pair, and when it ends."""
    pair = issue_serving(state.authority, policy.names, now, policy.lifetime)
    data = {
        SERVING_CERTIFICATE: pair.certificate_pem,
        SERVING_KEY: pair.key_pem,
        BUNDLE: state.bundle,
    }
    return data, pair.certificate.not_valid_after_utc


def _pair_error(certificate: x509.Certificate, key_text: bytes, now: datetime) -> str:
    if error := key_error(certificate, key_text):
        return error
    if not may_serve(certificate):
        return "the serving certificate is not for servers (extendedKeyUsage)"
    if not is_valid(certificate, now):
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return f"the serving certificate is valid only from {begin:%F %T} to {end:%F %T}"
    return ""
