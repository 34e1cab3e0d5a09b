"""Decide which CA signs, which CAs are trusted, and when certificates are replaced. Pure.

A CA is replaced in steps, so that the bundle always trusts what a replica serves:

1. Its Secret and the bundle of the webhook configurations get the new CA beside the old one.
2. Once the bundle was read back from all configurations and `settle` has passed, the new CA signs
   the serving certificate.
3. Once that certificate is older than `overlap`, the other CAs leave the bundle.

The same rules repair damage, and adopt a CA that was put in by hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from certs.authority import (
    KeyPair,
    authority_error,
    create_authority,
    issue_serving,
    key_pair,
    signing_error,
)
from certs.certificates import (
    Certificate,
    UnusableKey,
    bundle_pem,
    find_signer,
    key_error,
    name_text,
    read_certificates,
    read_signing_key,
    unique,
)
from certs.verification import refusal, unreadable
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

_REMEDY: Final = (
    "put in an unencrypted elliptic curve key (P-256, P-384 or P-521) and its CA certificate, or"
    " remove ca.key and ca.crt to get a new CA"
)


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
    old: tuple[Certificate, ...] = ()
    created: str = ""
    """Why another certificate signs from now on; empty if none does."""
    doubt: str = ""
    """Why API servers would refuse what the CA signs, where it signs nevertheless."""

    @property
    def authorities(self) -> tuple[Certificate, ...]:
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
    serving: Certificate | None,
    configured: Sequence[Certificate],
    policy: CertificatePolicy,
    now: datetime,
    *,
    force: bool = False,
) -> CaState:
    """The next state of the CA's Secret; `force` replaces a CA that is not due.

    `serving` is the certificate that can be in use; `configured` are the CAs in the webhook
    configurations.
    """
    state = _next_state(data, serving, configured, policy, now, force=force)
    error = signing_error(state.authority, policy.names, now, state.old)
    # A CA that was put in by hand may be unfit for our names: nothing is written then.
    if error and not _is_used_in_doubt(state, serving, configured, now):
        raise CertificateError(f"ca.crt: {error}: {_REMEDY}")
    return replace(state, doubt=error)


def _is_used_in_doubt(
    state: CaState,
    serving: Certificate | None,
    configured: Sequence[Certificate],
    now: datetime,
) -> bool:
    """Whether we would refuse what the CA has signed, and what is in use."""
    # We are stricter than API servers: they may accept it, and its renewal makes nothing worse.
    own = state.authority.certificate
    if serving is None or own not in configured or not serving.is_signed_by(own):
        return False
    return bool(unreadable(own) or refusal(serving, state.authorities, now))


def _next_state(
    data: Mapping[str, bytes],
    serving: Certificate | None,
    configured: Sequence[Certificate],
    policy: CertificatePolicy,
    now: datetime,
    *,
    force: bool,
) -> CaState:
    authority, created = _signing_pair(data, policy, now, force=force)
    own = authority.certificate
    # A lost Secret, or certificates made by other means: what the configurations trust may serve.
    known = unique((*stored_authorities(data), *configured))
    old = [one for one in known if one != own and one.is_authority and one.is_valid(now)]
    signer = find_signer(serving, (own, *old))
    # All replicas have a certificate of the CA that signs: nobody needs another.
    if serving is not None and signer == own and now - serving.issued > policy.overlap:
        return CaState(authority, created=created)
    if signer is not None and signer != own:
        old.insert(0, signer)  # so that it is not among those that are too many
    # With the CA that signs, fewer than `read_certificates` reads.
    return CaState(authority, unique(old)[:MOST_OLD], created)


def stored_authorities(data: Mapping[str, bytes]) -> tuple[Certificate, ...]:
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
        # It may be somebody's only copy: never overwrite it.
        raise CertificateError(f"{error}, so it cannot sign: {_REMEDY}") from error
    lifetime = policy.authority_lifetime
    if not data.get(CA_KEY) and not data.get(CA_CERTIFICATE):
        return create_authority(now, lifetime), "the Secret holds no CA yet"
    if key is None:
        return create_authority(now, lifetime), "ca.key is missing or unreadable"
    if not certificates:  # with the same key, what it has signed stays trusted
        return create_authority(now, lifetime, key), "ca.crt is missing or unreadable"
    pair = key_pair(key, certificates)
    reason = authority_error(pair, now)
    if pair.matches and not pair.certificate.may_sign:
        # Somebody's serving pair, put into the wrong Secret.
        raise CertificateError(f"ca.crt: {reason}: {_REMEDY}")
    reason = reason or ("requested" if force else "")
    if not reason and now >= pair.certificate.due:
        reason = f"the CA is due since {pair.certificate.due:%F %T}"
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


def serving_certificate(data: Mapping[str, bytes]) -> Certificate | None:
    """The serving certificate in a Secret; None if there is none."""
    return next(iter(read_certificates(data.get(SERVING_CERTIFICATE, b""))), None)


def usable_certificate(data: Mapping[str, bytes], now: datetime) -> Certificate | None:
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
        error = f"the serving certificate is from an unknown CA ({serving.issuer})"
        return PairStatus(error=error, untrusted=True)
    if signer != state.authority.certificate:
        # API servers may not yet know the CA that would sign the next one.
        return PairStatus(due="the CA has changed", waits=True)
    return _own_status(serving, state, policy, now)


def _own_status(
    serving: Certificate, state: CaState, policy: CertificatePolicy, now: datetime
) -> PairStatus:
    """Check a serving certificate from the CA that signs."""
    # In doubt, another one from the same CA would be refused too.
    if not state.doubt and (refused := refusal(serving, state.authorities, now)):
        return PairStatus(error=f"API servers refuse the serving certificate: {refused}")
    # Names that it has beside the wanted ones are no reason: replicas of two versions would undo
    # each other's work.
    if missing := serving.missing(map(name_text, policy.names)):
        return PairStatus(due=f"it lacks {', '.join(missing)}")
    due = serving.due
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
    return data, pair.certificate.ends


def _pair_error(certificate: Certificate, key_text: bytes, now: datetime) -> str:
    if error := key_error(certificate, key_text):
        return error
    if not certificate.may_serve:
        return "the serving certificate is not for servers (extendedKeyUsage)"
    if not certificate.is_valid(now):
        begin, end = certificate.begins, certificate.ends
        return f"the serving certificate is valid only from {begin:%F %T} to {end:%F %T}"
    return ""
