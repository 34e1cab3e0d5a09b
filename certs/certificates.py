"""Read certificates and keys from PEM, and compare them. Pure."""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

from services.process.errors import CertificateError
from services.process.pem import certificate_blocks
from services.process.text import plain

CLOCK_SKEW: Final = timedelta(hours=1)
"""How far our certificates are dated back."""

RENEWAL_SHARE: Final = 2 / 3
"""Share of its life after which a certificate is renewed."""

MOST_CERTIFICATES: Final = 32
"""Certificates read from one PEM text."""

_CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")
"""P-256, P-384 and P-521: Go, and so an API server, knows no other."""


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

E = TypeVar("E", bound=x509.ExtensionType)


class UnusableKey(CertificateError):
    """A private key that is whole but cannot be used: encrypted, or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, as everything that is used of it; no access raises."""

    der: bytes = field(repr=False)
    subject: str
    issuer: str
    begins: datetime
    ends: datetime
    names: tuple[str, ...]
    """Its subject alternative names that are DNS names or IP addresses."""
    serial: int
    public_key: bytes = field(repr=False)
    """As `public_bytes` encodes it."""
    key_identifier: bytes = field(repr=False)
    is_authority: bool
    """Whether it is a CA's."""
    may_sign: bool
    """Whether strict clients accept it as a CA's."""
    may_serve: bool
    """Whether its purposes include servers."""
    parsed: x509.Certificate = field(compare=False, repr=False)
    """For signatures and verification; other parts may raise where the library reads them late."""

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.parsed.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """Its SHA-256, as `openssl x509 -fingerprint -sha256` shows it."""
        return ":".join(f"{byte:02X}" for byte in self.parsed.fingerprint(hashes.SHA256()))

    @property
    def issued(self) -> datetime:
        """When it was issued, if we issued it."""
        # One made by other means is not dated back, and may end before that hour is over.
        return self.ends if self.ends - self.begins < CLOCK_SKEW else self.begins + CLOCK_SKEW

    @property
    def due(self) -> datetime:
        """When it is to be renewed."""
        return self.issued + (self.ends - self.issued) * RENEWAL_SHARE

    def is_valid(self, now: datetime) -> bool:
        """Whether its validity has begun and not ended."""
        return self.begins <= now < self.ends

    def is_signed_by(self, authority: "Certificate") -> bool:
        """Whether the key of `authority` signed it."""
        try:
            self.parsed.verify_directly_issued_by(authority.parsed)
        except Exception:  # noqa: BLE001 - the library's errors have no class in common
            return False
        return True

    def missing(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """The wanted names that it lacks."""
        held = {name.lower() for name in self.names}  # DNS names are compared without case
        return tuple(name for name in wanted if name.lower() not in held)


def convert(parsed: x509.Certificate) -> Certificate:
    """Read everything that is used of a certificate; the library's errors pass through."""
    key = parsed.public_key()
    constraints = _extension(parsed, x509.BasicConstraints)
    usage = _extension(parsed, x509.KeyUsage)
    purposes = _extension(parsed, x509.ExtendedKeyUsage)
    names = _extension(parsed, x509.SubjectAlternativeName) or ()
    identifier = _extension(parsed, x509.SubjectKeyIdentifier)
    return Certificate(
        der=parsed.public_bytes(serialization.Encoding.DER),
        subject=plain(parsed.subject.rfc4514_string(), 200),
        issuer=plain(parsed.issuer.rfc4514_string(), 200),
        begins=parsed.not_valid_before_utc,
        ends=parsed.not_valid_after_utc,
        names=tuple(map(name_text, filter(_is_address, names))),
        serial=parsed.serial_number,
        public_key=public_bytes(key),
        key_identifier=(identifier or x509.SubjectKeyIdentifier.from_public_key(key)).digest,
        # Version 1 has no extensions: Go accepts any such certificate as a CA's.
        is_authority=constraints.ca if constraints else parsed.version is x509.Version.v1,
        # RFC 5280 wants both extensions, and `-x509_strict` misses either.
        may_sign=bool(constraints and constraints.ca and usage and usage.key_cert_sign),
        # Without the extension a certificate is for any purpose.
        may_serve=purposes is None or ExtendedKeyUsageOID.SERVER_AUTH in purposes,
        parsed=parsed,
    )


def _extension(parsed: x509.Certificate, kind: type[E]) -> E | None:
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _is_address(name: x509.GeneralName) -> bool:
    return isinstance(name, (x509.DNSName, x509.IPAddress))


def read_certificates(text: bytes) -> tuple[Certificate, ...]:
    """The usable certificates in a PEM text, without duplicates."""
    return unique(one for one in _read(text) if isinstance(one, Certificate))


def unusable_certificates(text: bytes) -> tuple[str, ...]:
    """Why certificates in a PEM text are skipped by `read_certificates`."""
    return tuple(one for one in _read(text) if isinstance(one, str))


def skipped_certificates(texts: Iterable[tuple[str, bytes]]) -> tuple[str, ...]:
    """The unusable certificates in PEM texts, each with the place of its text and a reason."""
    return tuple(f"{where}: {why}" for where, text in texts for why in unusable_certificates(text))


def _read(text: bytes) -> Iterator[Certificate | str]:
    for number, block in enumerate(certificate_blocks(text), 1):
        if number > MOST_CERTIFICATES:  # a longer bundle or chain is a mistake
            yield f"certificate {number} and later: there are more than {MOST_CERTIFICATES}"
            return
        try:
            yield convert(x509.load_pem_x509_certificate(block))
        # The errors of the library have no class in common, and an unusual certificate must not
        # keep the others from their use.
        except Exception as error:  # noqa: BLE001
            yield f"certificate {number}: {plain(str(error), 200) or type(error).__name__}"


def read_key(text: bytes) -> PrivateKeyTypes | None:
    """The private key in a PEM text; None where there is none that can be read."""
    try:
        return serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise UnusableKey("the key is encrypted") from error
    except UnsupportedAlgorithm as error:
        raise UnusableKey(f"the key is of an unknown kind ({error})") from error
    except ValueError:
        return None


def read_signing_key(text: bytes) -> ec.EllipticCurvePrivateKey | None:
    """As `read_key`, for a CA's key."""
    key = read_key(text)
    if key is None:
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        kind = type(key).__name__.removesuffix("PrivateKey")
        raise UnusableKey(f"the key is {kind}, not an elliptic curve key")
    if key.curve.name not in _CURVES:
        raise UnusableKey(f"the key's curve is {key.curve.name}, not P-256, P-384 or P-521")
    return key


def key_error(certificate: Certificate, key_text: bytes) -> str:
    """Why a serving certificate cannot be used with a key; empty if it can."""
    try:
        key = read_key(key_text)
    except UnusableKey as error:
        return f"the serving certificate cannot be used: {error}"
    if key is None:
        return "the serving certificate has no readable key"
    if public_bytes(key.public_key()) != certificate.public_key:
        return "the serving certificate and its key do not belong together"
    return ""


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
    names = _extension(parsed, x509.SubjectAlternativeName) or ()
    policies = [one.policy_identifier for one in _extension(parsed, x509.CertificatePolicies) or ()]
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


def find_signer(
    certificate: Certificate | None, authorities: Iterable[Certificate]
) -> Certificate | None:
    """The first of `authorities` that signed a certificate; None if none did."""
    if certificate is None:
        return None
    return next((one for one in authorities if certificate.is_signed_by(one)), None)


def bundle_pem(certificates: Iterable[Certificate]) -> bytes:
    """Certificates as one PEM text."""
    return b"".join(one.pem for one in certificates)


def unique(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """The same certificates in the same order, without duplicates."""
    return tuple(dict.fromkeys(certificates))


def lifetime_of(certificate: Certificate, authorities: Iterable[Certificate]) -> timedelta | None:
    """How long a certificate was issued for; None where it ends early, with its CA."""
    if any(certificate.ends == authority.ends for authority in authorities):
        return None
    return certificate.ends - certificate.issued


def general_name(text: str) -> x509.DNSName | x509.IPAddress:
    """A DNS name or an IP address, which is not checked, as it stands in a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def name_text(name: x509.GeneralName) -> str:
    """A subject alternative name as people write it."""
    return str(name.value)


def public_bytes(key: PublicKeyTypes) -> bytes:
    """A public key as DER, to compare it."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)
