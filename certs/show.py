"""What certificates say, as plain values for people and scripts. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from cryptography import x509

from certs.authority import name_text
from certs.contents import Contents
from certs.reading import (
    certificates_in,
    fingerprint,
    is_valid,
    names_of,
    renewal_time,
    subject_text,
)
from certs.serving import KEY, key_problem
from certs.trust import KEY as CA_KEY
from certs.trust import OLD_UNTIL, SHARE


def described(contents: Contents, now: datetime) -> dict[str, Any]:
    """What a folder or a cluster holds, without any key.

    Keys are added, and neither change nor go: scripts read it.
    """
    return {
        "certificates": list(_certificates(contents, now)),
        "bundles": [
            {
                "configuration": name,
                "fingerprints": [fingerprint(one) for one in certificates_in(bundle).all],
            }
            for name, bundle in contents.bundles.items()
        ],
        "missing": list(contents.missing),
    }


def _certificates(contents: Contents, now: datetime) -> Iterator[dict[str, Any]]:
    until = contents.authority.get(OLD_UNTIL, b"").decode("ascii", "replace")
    for number, one in enumerate(contents.authorities):
        role = "old CA" if number else "CA"
        row = _row(role, contents.authority_at, one, now)
        if number:
            row["leaves"] = until
        else:
            text = contents.authority.get(CA_KEY, b"")
            row["key"] = _key(one, text)
        yield row
    for number, one in enumerate(contents.chain):
        row = _row("chain" if number else "serving", contents.serving_at, one, now)
        if not number:
            row["key"] = _key(one, contents.serving.get(KEY, b""))
        yield row


def _key(certificate: x509.Certificate, text: bytes) -> str:
    if not text.strip():
        return "missing"
    return "matches" if not key_problem(certificate, text) else "does not match"


def _row(role: str, source: str, one: x509.Certificate, now: datetime) -> dict[str, Any]:
    begins, ends = one.not_valid_before_utc, one.not_valid_after_utc
    return {
        "role": role,
        "source": source,
        "subject": subject_text(one.subject),
        "issuer": subject_text(one.issuer),
        "names": [name_text(name) for name in names_of(one)],
        "notBefore": begins.isoformat(),
        "notAfter": ends.isoformat(),
        "renewal": renewal_time(one, SHARE).isoformat(),
        "valid": is_valid(one, now),
        "daysLeft": round((ends - now).total_seconds() / 86400, 1),
        "serial": f"{one.serial_number:x}",
        "fingerprint": fingerprint(one),
    }
