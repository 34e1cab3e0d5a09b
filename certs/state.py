"""The state of the webhook's certificates, and the next step. Pure.

    state       CA Secret    bundle     serving Secret    next step
    ---------   ----------   --------   ---------------   ---------------------------------------
    empty       -            -          -                 A signs at once
    steady      A            A          of A              at two thirds of its life: another of A
    announced   B, old A     B and A    of A              once settled, B signs
    switched    B, old A     B and A    of B, young       at the age OVERLAP, A leaves the bundle

A CA is `announced` when A is due, has lost its key, or was replaced by hand. The bundle has settled
when all webhook configurations have had it for a while, so that API servers trust B before replicas
of the webhook serve its certificate. OVERLAP later all replicas serve it. A lost Secret leaves its
CA in the bundle, and a lost bundle its CAs in the Secret: the next state is `announced` again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from certs.authority import KeyPair, create_authority, is_ours, issue_serving
from certs.certificates import (
    CLOCK_SKEW,
    MOST_CERTIFICATES,
    Certificate,
    bundle_pem,
    count_unreadable,
    key_error,
    read_certificates,
    read_key,
)
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
"""The bundle when the certificate was issued; a pair without it is to be renewed."""
SERVING_KEYS: Final = frozenset({SERVING_CERTIFICATE, SERVING_KEY, BUNDLE})
"""Our keys in the serving Secret."""

OVERLAP: Final = timedelta(days=1)
"""Age of a serving certificate at which all replicas of the webhook have mounted it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The certificates of a cluster, or of a folder, which is both Secrets."""

    authority: Mapping[str, bytes]
    """The data of the CA's Secret."""
    serving: Mapping[str, bytes]
    """The data of the serving Secret."""
    bundles: Sequence[tuple[str, bytes]] = ()
    """The bundles of the webhook configurations, each with its place."""
    place: str = ""
    """Where the CA is, for people."""

    @property
    def chain(self) -> tuple[Certificate, ...]:
        """The serving certificate, if any, and the intermediate CAs behind it."""
        return read_certificates(self.serving.get(SERVING_CERTIFICATE, b""))

    @property
    def authorities(self) -> tuple[Certificate, ...]:
        """The certificates in the CA's Secret, then those in the bundles only."""
        found = (one for text in self._texts for one in read_certificates(text))
        return tuple(dict.fromkeys(found))

    @property
    def unreadable(self) -> int:
        """How many certificates beside these can't be read."""
        return sum(map(count_unreadable, self._texts))

    @property
    def _texts(self) -> tuple[bytes, ...]:
        held = (self.authority.get(key, b"") for key in (CA_CERTIFICATE, OLD_CAS))
        return (*held, *(bundle for _, bundle in self.bundles))


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
    unusable = _pair_error(serving, stored.serving, now)
    is_own = serving is not None and serving.is_signed_by(own)
    others = [one for one in stored.authorities if one != own and not one.validity_error(now)]
    if serving and is_own and not unusable and now - serving.begins > OVERLAP + CLOCK_SKEW:
        others = []  # all replicas serve what this CA has signed
    others.sort(key=lambda one: serving is None or not serving.is_signed_by(one))
    trusted = (own, *others)[:MOST_CERTIFICATES]  # as many as are read
    # Whoever asks for a renewal may not know the names that others have set.
    if unusable and serving and any(map(serving.is_signed_by, trusted)):
        names = tuple(dict.fromkeys((*names, *serving.names)))
    pair = issue_serving(authority, names, now)
    old = {OLD_CAS: bundle_pem(trusted[1:])} if others else {}
    return Step(
        {CA_CERTIFICATE: own.pem, CA_KEY: authority.key_pem, **old},
        created,
        trusted,
        {
            SERVING_CERTIFICATE: pair.certificate.pem,
            SERVING_KEY: pair.key_pem,
            BUNDLE: bundle_pem(trusted),
        },
        unusable or (_renewal_reason(serving, names, now, is_own=is_own) if serving else ""),
        # API servers may not know this CA yet, and replicas serve what another one has signed,
        # although its Secret may be lost. In the first round there is no other.
        waits=not is_own and bool(others),
    )


def signing_pair(stored: Stored, now: datetime) -> tuple[KeyPair, str]:
    """The pair that signs, and why it is new; empty if it is stored.

    Raises:
        CertificateError: There is a CA that accelbind has not created.
    """
    data = stored.authority
    held = read_certificates(data.get(CA_CERTIFICATE, b""))
    # API servers might refuse what it signs.
    if strangers := [one.subject for one in held if not is_ours(one)]:
        text = f"accelbind has not created this CA: {strangers[0]}: remove ca.key and ca.crt to get"
        raise CertificateError(f"{stored.place}: {CA_CERTIFICATE}: {text} a new one")
    key = read_key(data.get(CA_KEY, b""))
    if key is None:
        found = any(map(data.get, CA_KEYS))
        return create_authority(now), "ca.key cannot be read" if found else "there is no CA yet"
    own = next((one for one in held if one.public_key == key.public_key()), None)
    if own is None or not isinstance(key, EllipticCurvePrivateKey):
        return create_authority(now), "ca.crt is not there, unreadable or of another key"
    if ended := own.validity_error(now):
        return create_authority(now), f"the CA cannot be used: {ended}"
    return KeyPair(own, key), ""


def _pair_error(serving: Certificate | None, data: Mapping[str, bytes], now: datetime) -> str:
    """Why a serving pair is replaced whoever signed it; empty if it is not."""
    if serving is None:
        return "there is no serving certificate"
    if error := key_error(serving, data.get(SERVING_KEY, b"")) or serving.validity_error(now):
        return f"the serving certificate cannot be used: {error}"
    return "" if data.get(BUNDLE) else f"{BUNDLE} was removed, as `accelbind certs renew` does"


def _renewal_reason(
    serving: Certificate, names: Sequence[str], now: datetime, *, is_own: bool
) -> str:
    """Why a serving pair that can be used is renewed; empty if it is not."""
    if not is_own:
        return "another CA has signed it"
    # Names that it has beside the wanted ones are no reason: replicas of two versions would undo
    # each other's work.
    if missing := set(names).difference(name.lower() for name in serving.names):
        return f"it lacks {', '.join(sorted(missing))}"
    return f"it is due since {serving.due:%F %T}" if now >= serving.due else ""
