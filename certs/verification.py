"""Decide whether API servers, which use Go, would accept a certificate. Pure."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtensionOID

from certs.certificates import Certificate, extension, general_name
from services.process.text import plain


def _check_usage(
    _policy: verification.Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None
) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the CA's keyUsage does not allow it to sign certificates")


_ANY: Final = verification.Criticality.AGNOSTIC
# Strict, but for what Go accepts in certificates made by other means.
_CA_POLICY: Final = (
    verification.ExtensionPolicy.webpki_defaults_ca()
    .require_present(x509.BasicConstraints, _ANY, None)
    .may_be_present(x509.KeyUsage, _ANY, _check_usage)
    .may_be_present(x509.CertificatePolicies, _ANY, None)
    .may_be_present(x509.PolicyConstraints, _ANY, None)
    .may_be_present(x509.InhibitAnyPolicy, _ANY, None)
)
_SERVER_POLICY: Final = (
    verification.ExtensionPolicy.webpki_defaults_ee()
    .require_present(x509.SubjectAlternativeName, _ANY, None)
    .may_be_present(x509.AuthorityKeyIdentifier, _ANY, None)
)

_UNCHECKED: Final = frozenset(
    {ExtensionOID.CRL_DISTRIBUTION_POINTS, x509.ObjectIdentifier("2.5.29.33")}  # policyMappings
)
"""Extensions that Go accepts in a CA's certificate, critical or not, without a further look."""

_STAND_IN_KEY: Final = ec.generate_private_key(ec.SECP256R1())

_ANY_TEXT: Final = re.compile(rb".*", re.DOTALL)
_ASCII: Final = re.compile(rb"[\x00-\x7f]*")
_STRINGS: Final = {
    0x0C: _ANY_TEXT,  # UTF8String, which the library has checked
    0x13: _ANY_TEXT,  # PrintableString, likewise
    0x12: re.compile(rb"[0-9 ]*"),  # NumericString
    0x14: _ASCII,  # T61String
    0x16: _ASCII,  # IA5String
    0x1E: re.compile(rb"([\x00-\xd7].)*", re.DOTALL),  # BMPString
}
"""Texts in names that Go and OpenSSL both read, by their tags in DER."""

_URI: Final = re.compile(
    r"[a-z][a-z0-9+-]*://[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?(/[a-z0-9._~/-]*)?", re.IGNORECASE
)
"""URIs that Go reads for certain: it refuses a certificate with one that it cannot read."""


def refusal(
    serving: Certificate,
    authorities: Sequence[Certificate],
    now: datetime,
    intermediates: Sequence[Certificate] = (),
) -> str:
    """Why API servers that trust these CAs refuse a server's certificate; empty if they accept it.

    It is verified for each of its names. There is at least one CA.
    """
    if reason := unreadable(serving):
        return reason
    policy = (
        verification.PolicyBuilder()
        .store(verification.Store([_stand_in(one, serving.names) for one in authorities]))
        .extension_policies(ca_policy=_CA_POLICY, ee_policy=_SERVER_POLICY)
        .time(now)
    )
    chain = [one.parsed for one in intermediates]
    for name in serving.names or ("",):
        subject = general_name(name.replace("*", "any"))  # a name that the wildcard stands for
        try:
            policy.build_server_verifier(subject).verify(serving.parsed, chain)
        except (verification.VerificationError, ValueError) as error:
            return plain(f"{error} ({name})", 300)
    return ""


def unreadable(certificate: Certificate) -> str:
    """Why Go or OpenSSL may fail to read a certificate that the library reads; empty if not."""
    parsed = certificate.parsed
    texts = [text for name in (parsed.subject, parsed.issuer) for text in _name_texts(name)]
    names = extension(parsed, x509.SubjectAlternativeName) or ()
    policies = [one.policy_identifier for one in extension(parsed, x509.CertificatePolicies) or ()]
    reasons = {
        "its subject or issuer has a text of an unusual type (use UTF8String)": (
            not all(kind in _STRINGS and _STRINGS[kind].fullmatch(text) for kind, text in texts)
        ),
        "its subjectAltName has an unusual URI": any(
            isinstance(name, x509.UniformResourceIdentifier) and not _URI.fullmatch(name.value)
            for name in names
        ),
        "its certificatePolicies repeat a policy": len(set(policies)) < len(policies),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _name_texts(name: x509.Name) -> Iterator[tuple[int, bytes]]:
    """The tag and content of each text in a name."""
    for _, relative_names in _elements(name.public_bytes()):
        for _, attributes in _elements(relative_names):
            for _, attribute in _elements(attributes):
                _identifier, text = _elements(attribute)
                yield text


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents of consecutive DER values that the library has written."""
    while der:
        start, size = 2, der[1]
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(der[2:start], "big")
        yield der[0], der[start : start + size]
        der = der[start + size :]


def _stand_in(authority: Certificate, names: Sequence[str]) -> x509.Certificate:
    """A CA's certificate, without what the library refuses and Go accepts.

    Nobody checks the signature of a trusted certificate, so that it may be any.
    """
    parsed = authority.parsed
    try:
        extensions = [
            (_without_dots(one.value, names), one.critical)
            for one in parsed.extensions
            if one.oid not in _UNCHECKED
        ]
        if extensions == [(one.value, one.critical) for one in parsed.extensions]:
            return parsed
        builder = (
            x509.CertificateBuilder()
            .subject_name(parsed.subject)
            .issuer_name(parsed.issuer)
            .public_key(parsed.public_key())
            .serial_number(parsed.serial_number)
            .not_valid_before(parsed.not_valid_before_utc)
            .not_valid_after(parsed.not_valid_after_utc)
        )
        for value, critical in extensions:
            builder = builder.add_extension(value, critical)
        return builder.sign(_STAND_IN_KEY, hashes.SHA256())
    # The library reads more than it writes, such as a date before 1950.
    except Exception:  # noqa: BLE001
        return parsed


def _without_dots(value: x509.ExtensionType, names: Sequence[str]) -> x509.ExtensionType:
    """Name constraints without leading dots: `.svc` means all names below `svc`."""
    if not isinstance(value, x509.NameConstraints):
        return value
    permitted, excluded = (
        subtrees and [_without_dot(one, names) for one in subtrees]
        for subtrees in (value.permitted_subtrees, value.excluded_subtrees)
    )
    return x509.NameConstraints(permitted, excluded)


def _without_dot(name: x509.GeneralName, names: Sequence[str]) -> x509.GeneralName:
    # `.svc` does not stand for `svc` itself, but `svc` does: the library refuses the dot then.
    if not isinstance(name, x509.DNSName) or name.value[1:].lower() in map(str.lower, names):
        return name
    return x509.DNSName(name.value.removeprefix("."))
