"""Decide whether API servers would accept a certificate. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.x509 import verification

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
)
_SERVER_POLICY: Final = (
    verification.ExtensionPolicy.webpki_defaults_ee()
    .require_present(x509.SubjectAlternativeName, _ANY, None)
    .may_be_present(x509.AuthorityKeyIdentifier, _ANY, None)
)


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
        .store(verification.Store([one.parsed for one in authorities]))
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
