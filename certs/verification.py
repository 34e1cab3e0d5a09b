"""Decide whether API servers would accept a certificate. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtensionOID

from certs.certificates import Certificate, general_name
from services.process.text import plain


def _check_usage(
    _policy: verification.Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None
) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the CA's keyUsage does not allow it to sign certificates")


_ANY: Final = verification.Criticality.AGNOSTIC
# Strict, but for what Go, and so an API server, accepts in certificates made by other means.
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

_NOBODY: Final = "nobody.invalid"
"""A name that no server has (RFC 2606)."""

_STAND_IN_KEY: Final = ec.generate_private_key(ec.SECP256R1())


def refusal(
    serving: Certificate,
    authorities: Sequence[Certificate],
    now: datetime,
    intermediates: Sequence[Certificate] = (),
) -> str:
    """Why API servers that trust these CAs may refuse a server's certificate; empty if they accept.

    It is verified for each of its names. There is at least one CA.
    """
    policy = (
        verification.PolicyBuilder()
        .store(verification.Store([_stand_in(one.parsed, serving.names) for one in authorities]))
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


def _stand_in(authority: x509.Certificate, names: Sequence[str]) -> x509.Certificate:
    """A CA's certificate, without what the library refuses and Go accepts.

    Nobody checks the signature of a trusted certificate, so that it may be any.
    """
    try:
        builder = (
            x509.CertificateBuilder()
            .subject_name(authority.subject)
            .issuer_name(authority.issuer)
            .public_key(authority.public_key())
            .serial_number(authority.serial_number)
            .not_valid_before(authority.not_valid_before_utc)
            .not_valid_after(authority.not_valid_after_utc)
        )
        for one in authority.extensions:
            if one.oid not in _UNCHECKED:
                builder = builder.add_extension(_without_dots(one.value, names), one.critical)
        return builder.sign(_STAND_IN_KEY, hashes.SHA256())
    # The library reads more than it writes, such as a date before 1950.
    except Exception:  # noqa: BLE001
        return authority


def _without_dots(value: x509.ExtensionType, names: Sequence[str]) -> x509.ExtensionType:
    """Name constraints without leading dots: in Go `.svc` means all names below `svc`."""
    if not isinstance(value, x509.NameConstraints):
        return value
    permitted, excluded = (
        [_without_dot(one, names) for one in subtrees] if subtrees else None
        for subtrees in (value.permitted_subtrees, value.excluded_subtrees)
    )
    return x509.NameConstraints(permitted, excluded)


def _without_dot(name: x509.GeneralName, names: Sequence[str]) -> x509.GeneralName:
    if not isinstance(name, x509.DNSName) or not name.value.startswith("."):
        return name
    parent = name.value.removeprefix(".")
    # A name is not below itself.
    return x509.DNSName(_NOBODY if parent.lower() in names else parent)
