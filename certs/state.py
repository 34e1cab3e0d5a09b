"""The state of the webhook's certificates, and the next step. Pure.

    state       CA Secret    bundle     serving Secret    next step
    ---------   ----------   --------   ---------------   ---------------------------------------
    empty       -            -          -                 A signs at once
    steady      A            A          of A              at two thirds of its life: another of A
    announced   B, old A     B and A    of A              once settled, B signs
    switched    B, old A     B and A    of B, young       at the age OVERLAP, A leaves the bundle

A CA is `announced` when A is due, damaged, replaced by hand or on request; a request is a key that
counts as lost. The bundle has settled when all webhook configurations have had it for a while, so
that API servers trust B before replicas of the webhook serve its certificate. OVERLAP later all
replicas serve it. A lost Secret leaves its CA in the bundle, and a lost bundle its CAs in the
Secret: the next state is `announced` again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from certs.authority import KeyPair, create_authority, issue_serving
from certs.certificates import (
    MOST_CERTIFICATES,
    Certificate,
    bundle_pem,
    extension,
    key_error,
    read_certificates,
    read_signing_key,
    unique,
    unusable_certificates,
)
from certs.verification import refusal
from services.process.errors import CertificateError

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
OLD_CAS: Final = "old.crt"
"""The other CAs in the bundle; their keys are not kept."""
CA_KEYS: Final = frozenset({CA_CERTIFICATE, CA_KEY, OLD_CAS})
"""Our keys in the Secret of the CA."""

SERVING_CERTIFICATE: Final = "tls.crt"
SERVING_KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
"""The bundle when the certificate was issued; nobody reads it."""
SERVING_KEYS: Final = frozenset({SERVING_CERTIFICATE, SERVING_KEY, BUNDLE})
"""Our keys in the serving Secret."""

OVERLAP: Final = timedelta(days=1)
"""Age of a serving certificate at which all replicas of the webhook have mounted it."""

REFUSED: Final = "API servers would refuse what this CA signs"
REMEDY: Final = (
    "put in an unencrypted elliptic curve key (P-256, P-384 or P-521) and its CA certificate, or"
    " remove ca.key and ca.crt to get a new CA"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """The certificates of a cluster, or of a folder, which is both Secrets."""

    authority: Mapping[str, bytes]
    """The data of the CA's Secret."""
    serving: Mapping[str, bytes]
    """The data of the serving Secret."""
    bundles: Sequence[tuple[str, bytes]] = ()
    """The bundles of the webhook configurations, each with its place."""
    complete: bool = True
    """Whether all configurations could be read."""
    places: tuple[str, str] = ("", "")
    """Where the CA and the serving pair are, for people."""

    @property
    def chain(self) -> tuple[Certificate, ...]:
        """The serving certificate, if any, and the intermediate CAs behind it."""
        return read_certificates(self.serving.get(SERVING_CERTIFICATE, b""))

    @property
    def held(self) -> tuple[Certificate, ...]:
        """The certificates in the CA's Secret; in `ca.crt` may be a chain, or the CA before."""
        texts = (self.authority.get(key, b"") for key in (CA_CERTIFICATE, OLD_CAS))
        return unique(one for text in texts for one in read_certificates(text))

    @property
    def configured(self) -> tuple[Certificate, ...]:
        """The CAs in the bundles."""
        return unique(one for _, bundle in self.bundles for one in read_certificates(bundle))

    @property
    def skipped(self) -> tuple[str, ...]:
        """The unusable certificates, each with its place and a reason."""
        secrets = zip(self.places, (self.authority, self.serving), strict=True)
        texts = [(f"{at}, {key}", text) for at, data in secrets for key, text in data.items()]
        every = (
            f"{at}: {why}"
            for at, text in (*texts, *self.bundles)
            for why in unusable_certificates(text)
        )
        return tuple(dict.fromkeys(every))


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be written, in this order: the CA's Secret, the bundle, the serving Secret."""

    authority: Mapping[str, bytes]
    """The data of the CA's Secret."""
    created: str
    """Why its CA is new; empty if the Secret holds it already."""
    trusted: tuple[Certificate, ...]
    """The CAs in the bundle, the one that signs first."""
    serving: Mapping[str, bytes]
    """The data of the serving Secret with a new pair."""
    renewal: str
    """Why that is written; empty if it is not."""
    waits: bool
    """Whether the bundle has to settle before that."""
    warnings: tuple[str, ...]
    """Certificates that are skipped, and why a CA that signs nevertheless is unusual."""


def next_step(stored: Stored, names: Sequence[str], now: datetime) -> Step:
    """Decide what is to be written.

    Raises:
        CertificateError: The CA's Secret holds a key or a CA that cannot be used. It may be
            somebody's only copy, so it is not overwritten.
    """
    authority, created = signing_pair(stored, now)
    if not created and now >= authority.certificate.due:
        created = f"the CA is due since {authority.certificate.due:%F %T}"
        authority = create_authority(now)
    own, serving = authority.certificate, next(iter(stored.chain), None)
    unusable = _pair_error(serving, stored.serving.get(SERVING_KEY, b""), now)
    is_own = serving is not None and serving.is_signed_by(own)
    others = _others(stored, own, serving, now)
    if serving and is_own and not unusable and now - serving.issued > OVERLAP:
        others = ()  # all replicas serve what this CA has signed
    trusted = (own, *others)
    signer = next((one for one in trusted if serving and serving.is_signed_by(one)), None)
    if unusable and serving and signer:  # whoever asks may not know the names that others have set
        names = tuple(dict.fromkeys((*names, *serving.names)))
    pair = issue_serving(authority, names, now)
    doubt = refusal(pair.certificate, trusted, now)
    refused = refusal(serving, trusted, now) if serving and signer else ""
    # We are stricter than API servers: they may accept a CA that is in use, and its renewal makes
    # nothing worse.
    in_use = is_own and not unusable and own in stored.configured
    if doubt and not (in_use and refused):
        raise CertificateError(f"{stored.places[0]}: ca.crt: {REFUSED}: {doubt}: {REMEDY}")
    renewal = unusable
    if serving and not unusable:
        renewal = _renewal_reason(serving, signer, own, names, now)
        if refused and not doubt:
            renewal = f"API servers refuse the serving certificate: {refused}"
    old = {OLD_CAS: bundle_pem(others)} if others else {}
    doubts = [f"the CA in use is unusual; it keeps signing: {doubt}"] if doubt else []
    return Step(
        {CA_CERTIFICATE: own.pem, CA_KEY: authority.key_pem, **old},
        created,
        trusted,
        {
            SERVING_CERTIFICATE: pair.certificate.pem,
            SERVING_KEY: pair.key_pem,
            BUNDLE: bundle_pem(trusted),
        },
        renewal,
        # API servers may not know this CA yet, and replicas serve what another one has signed,
        # although its Secret may be lost. In the first round there is no other.
        waits=not is_own and (bool(others) or not stored.complete),
        warnings=(*stored.skipped, *doubts),
    )


def signing_pair(stored: Stored, now: datetime) -> tuple[KeyPair, str]:
    """The pair that signs, and why it is new; empty if it is stored.

    Raises:
        CertificateError: The key cannot be used, or its certificate is not a CA's.
    """
    data, at = stored.authority, stored.places[0]
    try:
        key = read_signing_key(data.get(CA_KEY, b""))
    except CertificateError as error:
        raise CertificateError(f"{at}: {error}, so it cannot sign: {REMEDY}") from error
    if key is None:
        found = any(map(data.get, CA_KEYS))
        return create_authority(now), "ca.key cannot be read" if found else "there is no CA yet"
    held = read_certificates(data.get(CA_CERTIFICATE, b""))
    own = next((one for one in held if one.public_key == key.public_key()), None)
    if own is None:  # with the same key, what it has signed stays trusted
        return create_authority(now, key=key), "ca.crt is not there, unreadable or of another key"
    constraints = extension(own.parsed, x509.BasicConstraints)
    if constraints is None or not constraints.ca:
        # Somebody's serving pair, put into the wrong Secret.
        raise CertificateError(f"{at}: ca.crt: the certificate is not a CA's: {REMEDY}")
    if ended := own.validity_error(now):
        return create_authority(now), f"the CA cannot be used: {ended}"
    return KeyPair(own, key), ""


def _others(
    stored: Stored, own: Certificate, serving: Certificate | None, now: datetime
) -> tuple[Certificate, ...]:
    """The CAs that are trusted beside the one that signs; that of what is served comes first."""
    known = unique((*stored.held, *stored.configured))
    others = [one for one in known if one != own and not one.validity_error(now)]
    others.sort(key=lambda one: serving is None or not serving.is_signed_by(one))
    return tuple(others[: MOST_CERTIFICATES - 1])  # with `own`, as many as are read


def _pair_error(serving: Certificate | None, key: bytes, now: datetime) -> str:
    """Why no webhook can use a serving pair; empty if it can."""
    if serving is None:
        return "there is no serving certificate"
    error = key_error(serving, key) or serving.validity_error(now)
    return f"the serving certificate cannot be used: {error}" if error else ""


def _renewal_reason(
    serving: Certificate,
    signer: Certificate | None,
    own: Certificate,
    names: Sequence[str],
    now: datetime,
) -> str:
    """Why a serving pair that can be used is renewed; empty if it is not."""
    if signer is None:
        return f"the serving certificate is from an unknown CA ({serving.issuer})"
    if signer != own:
        return "the CA has changed"
    # Names that it has beside the wanted ones are no reason: replicas of two versions would undo
    # each other's work.
    if missing := set(names).difference(name.lower() for name in serving.names):
        return f"it lacks {', '.join(sorted(missing))}"
    return f"it is due since {serving.due:%F %T}" if now >= serving.due else ""
