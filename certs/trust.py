"""Whom the API server is to trust: the CA that signs, and those that it takes over from. Pure.

The Secret of the CA holds the pair that signs (`ca.crt`, `ca.key`), the CAs before it (`old.crt`)
and until when they stay in the bundle (`old.until`). A change of the CA is one write of this
Secret. Then, each step once the one before has been seen done:

1. the new bundle, new CA and old ones, goes into the webhook configurations;
2. when it has been there for a while, so that all API servers know it, a serving certificate of the
   new CA is issued (`certs.serving`);
3. when that has been there for `overlap` and no replica that is asked shows a certificate of an old
   CA any more (`certs.replicas`), the old CAs go.

So whatever a replica shows, the bundle of that time has its CA. The key of an old CA isn't kept:
what it has signed serves until step 2, and nothing new is signed with it.

What else may be found is repaired, and `reasons` say how: a Secret that is empty, a key or a
certificate that is missing, garbled or of another pair, a CA that has ended or was put there by
hand. A CA that the configurations trust and that has signed what is served now is kept as an old
one, wherever it came from: that carries over from certificates made by other means. So are those
that they trust where both Secrets were lost. Refused are a key that is whole and can't be used, and
a pair that is no CA's: they are somebody's, and not ours to overwrite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import (
    Authority,
    certificate_pem,
    check_authority,
    key_pem,
    make_authority,
    may_sign,
    sign_authority,
)
from certs.reading import (
    UnusableKey,
    bundle_pem,
    certificates_in,
    is_authority,
    is_valid,
    key_in,
    renewal_time,
    signer_of,
    unique,
)
from services.process.errors import CertificateError

CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"
OLD: Final = "old.crt"
OLD_UNTIL: Final = "old.until"
KEYS: Final = frozenset({CERTIFICATE, KEY, OLD, OLD_UNTIL})

SHARE: Final = 2 / 3
"""Of its life after which a certificate is renewed."""

MOST_OLD: Final = 30
"""Old CAs that a bundle may hold, which with the one that signs is less than is read of a text."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What certificates are to be like, and when they are due.

    Attributes:
        names: Of the serving certificate.
        lifetime: Of the serving certificate.
        authority_lifetime: Of a CA.
        overlap: How long an old CA stays once nothing of it is served by the Secret any more.
        settle: How long a bundle is to be in the configurations before what it trusts is served.
        share: Of its life after which a certificate is renewed.
    """

    names: tuple[x509.GeneralName, ...]
    lifetime: timedelta
    authority_lifetime: timedelta
    overlap: timedelta
    settle: timedelta
    share: float = SHARE


@dataclass(frozen=True, slots=True)
class Trust:
    """What the CA's Secret is to hold.

    Attributes:
        authority: Who signs.
        old: The CAs before it that are still trusted, newest first.
        old_until: When they go; None while something of theirs is being served.
    """

    authority: Authority
    old: tuple[x509.Certificate, ...] = ()
    old_until: datetime | None = None

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """All who are trusted, the one that signs first."""
        return (self.authority.certificate, *self.old)

    @property
    def bundle(self) -> bytes:
        """All who are trusted, as a webhook configuration wants it."""
        return bundle_pem(self.authorities)

    def data(self) -> dict[str, bytes]:
        """As it stands in the Secret."""
        data = {
            CERTIFICATE: certificate_pem(self.authority.certificate),
            KEY: key_pem(self.authority.key),
        }
        if self.old:
            data[OLD] = bundle_pem(self.old)
            if self.old_until is not None:
                data[OLD_UNTIL] = self.old_until.isoformat().encode()
        return data


@dataclass(slots=True)
class Step:
    """What the CA's Secret shall hold next, and why that isn't what it holds.

    Attributes:
        trust: What it shall hold.
        reasons: What was found and is being done about it, a sentence each.
        changed: Whether another CA signs from now on.
        leaves: With the old CAs, where they go in this step; None where none goes.
    """

    trust: Trust
    reasons: list[str] = field(default_factory=list)
    changed: bool = False
    leaves: Trust | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known when the CA is judged.

    Attributes:
        chain: The serving certificate now, and what stands between it and its CA.
        trusted: The CAs in the webhook configurations.
        behind: Whether a replica was seen to show a certificate of an old CA, which then stays.
    """

    chain: Sequence[x509.Certificate] = ()
    trusted: Sequence[x509.Certificate] = ()
    behind: bool = False


def next_trust(
    data: Mapping[str, bytes],
    around: Surroundings,
    rules: Rules,
    now: datetime,
    *,
    force: bool = False,
) -> Step:
    """What the CA's Secret shall hold.

    Args:
        data: What it holds.
        around: What else there is.
        rules: How it shall be.
        now: The present.
        force: Whether the CA is to be changed although it isn't due.

    Raises:
        CertificateError: It holds a key that isn't ours to overwrite, and that we can't use.
    """
    step = _pair(data, rules, now, force=force)
    old = certificates_in(data.get(OLD, b""))
    if old.broken:
        step.reasons.append(f"{old.broken} old CAs can't be read and leave the bundle")
    held = unique((*step.trust.old, *old.all))
    step.trust = replace(step.trust, old=held, old_until=_moment(data.get(OLD_UNTIL, b"")))
    _adopt(step, around)
    _prune(step, around.chain, now)
    _let_go(step, around, rules, now)
    return step


def _pair(data: Mapping[str, bytes], rules: Rules, now: datetime, *, force: bool) -> Step:
    """The pair that signs: that of the Secret, mended, or a new one."""
    found = certificates_in(data.get(CERTIFICATE, b""))
    certificate = found.all[0] if found.all else None
    try:
        key = key_in(data.get(KEY, b""))
    except UnusableKey as error:
        raise CertificateError(
            f"{error}, which can't sign here: put in an unencrypted elliptic curve key and its"
            " certificate, or take ca.key and ca.crt out to have a new CA made"
        ) from error
    if certificate is None and key is None:
        was = "garbled" if data.get(CERTIFICATE) or data.get(KEY) else "empty"
        return _new(rules, now, f"the Secret is {was}: a new CA is made")
    if certificate is None:
        assert key is not None  # noqa: S101 - the case above
        return _signed_anew(key, rules, now)
    if key is None:
        was = "garbled" if data.get(KEY) else "lost"
        return _new(rules, now, f"the CA's key is {was}: a new CA is made", certificate)
    return _whole(Authority(certificate, key), rules, now, force=force)


def _whole(authority: Authority, rules: Rules, now: datetime, *, force: bool) -> Step:
    """A pair that is there: itself, or a new one where it is none or due."""
    certificate = authority.certificate
    if certificate.public_key() == authority.key.public_key() and not may_sign(certificate):
        raise CertificateError(
            "the certificate in ca.crt belongs to ca.key but is not a CA's (basicConstraints,"
            " keyUsage): put in a CA's, or take ca.key and ca.crt out to have a new CA made"
        )
    try:
        check_authority(authority, now)
    except CertificateError as error:
        return _new(rules, now, f"{error}: a new CA is made", certificate)
    if force:
        return _new(rules, now, "a new CA is asked for", certificate)
    due = renewal_time(certificate, rules.share)
    if now >= due:
        return _new(rules, now, f"the CA is due since {due:%F %T}: a new one is made", certificate)
    return Step(Trust(authority))


def _new(rules: Rules, now: datetime, reason: str, *before: x509.Certificate) -> Step:
    trust = Trust(make_authority(now, rules.authority_lifetime), old=before)
    return Step(trust, [reason], changed=True)


def _signed_anew(key: ec.EllipticCurvePrivateKey, rules: Rules, now: datetime) -> Step:
    """A certificate for a key that has lost its own: what it has signed counts under either."""
    trust = Trust(sign_authority(key, now, rules.authority_lifetime))
    return Step(trust, ["the CA's certificate is lost or garbled: its key gets a new one"])


def _adopt(step: Step, around: Surroundings) -> None:
    """Keeps the CAs that the configurations trust, where we have lost whose certificates are shown.

    That is so if what is served is of one of them and we don't know it, and if both Secrets were
    lost: replicas show what they have loaded until their mounted Secret follows.
    """
    trusted = tuple(filter(is_authority, around.trusted))
    if not around.chain:
        lost = step.changed and not step.trust.old
        reason = "what was served is lost, and replicas may still show it"
    else:
        known = signer_of(around.chain, step.trust.authorities)
        lost = not known and signer_of(around.chain, trusted) is not None
        reason = "what is served now is of a CA that is not in this Secret"
    if lost and trusted:
        step.trust = replace(step.trust, old=unique((*trusted, *step.trust.old)))
        step.reasons.append(
            f"{reason}: the CAs that the webhook configurations trust stay in the bundle so long"
        )


def _prune(step: Step, chain: Sequence[x509.Certificate], now: datetime) -> None:
    """Without old CAs that count for nothing: ended, none, or the one that signs.

    Nor more than a bundle may hold; that of what is served now is the last to go.
    """
    trust = step.trust
    kept = [
        one
        for one in trust.old
        if one != trust.authority.certificate and is_authority(one) and is_valid(one, now)
    ]
    served = signer_of(chain, kept[MOST_OLD:])
    if served is not None and signer_of(chain, kept[:MOST_OLD]) is None:
        kept[MOST_OLD - 1] = served
    del kept[MOST_OLD:]
    step.trust = replace(trust, old=tuple(kept), old_until=trust.old_until if kept else None)


def _let_go(step: Step, around: Surroundings, rules: Rules, now: datetime) -> None:
    """Counts the days of the old CAs from when nothing of theirs is served, and ends them."""
    trust = step.trust
    if not trust.old:
        return
    if step.changed or signer_of(around.chain, (trust.authority.certificate,)) is None:
        step.trust = replace(trust, old_until=None)
        return
    latest = now + rules.overlap
    if trust.old_until is None or trust.old_until > latest:
        step.trust = replace(trust, old_until=latest)
        step.reasons.append(f"nothing of the old CA is served any more: it goes on {latest:%F %T}")
    elif now >= trust.old_until and not around.behind:
        step.leaves = trust
        step.trust = replace(trust, old=(), old_until=None)
        step.reasons.append("the old CA leaves the bundle")


def _moment(text: bytes) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:  # UnicodeDecodeError is one
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
