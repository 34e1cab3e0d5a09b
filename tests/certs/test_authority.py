from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import (
    Authority,
    check_authority,
    issue_serving,
    make_authority,
    name_text,
    parse_names,
    sign_authority,
)
from services.process.errors import CertificateError, InvalidSettings

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["webhook.default.svc"], ["webhook.default.svc"]),
        (["Webhook.Default.SVC."], ["webhook.default.svc"]),
        (["localhost"], ["localhost"]),
        (["127.0.0.1", "::1"], ["127.0.0.1", "::1"]),
        (["0:0:0:0:0:0:0:1", "::1"], ["::1"]),
        (["*.webhook.svc"], ["*.webhook.svc"]),
        (["b", "a", "b", " a "], ["b", "a"]),
        (["a" * 63 + ".svc"], ["a" * 63 + ".svc"]),
    ],
)
def test_names_are_read_as_dns_names_and_addresses(typed: list[str], expected: list[str]) -> None:
    assert [name_text(name) for name in parse_names(typed)] == expected


@pytest.mark.parametrize(
    "typed",
    [
        "",
        ".",
        "a..b",
        "-a.svc",
        "a-.svc",
        "a_b.svc",
        "a b",
        "http://webhook",
        "webhook:8443",
        "bücher.example",
        "*",
        "*.svc",
        "a.*.svc",
        "300.1.2.3",
        "1.2.3",
        "a" * 64,
        ".".join(["a" * 50] * 6),
        "10.0.0.0/8",
    ],
)
def test_what_is_no_name_is_refused_with_what_was_typed(typed: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_names(["localhost", typed])
    assert repr(typed) in str(caught.value)


def test_no_name_at_all_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="needs a name"):
        parse_names([])


def test_the_ca_may_sign_certificates_and_nothing_below_another_ca() -> None:
    certificate = make_authority(NOW, 10 * DAY).certificate
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert certificate.subject == certificate.issuer


def test_the_serving_certificate_is_for_serving_only() -> None:
    authority = make_authority(NOW, 10 * DAY)
    certificate = issue_serving(authority, parse_names(["a.svc", "10.0.0.1"]), NOW, DAY).certificate
    extensions = certificate.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name_text(name) for name in names] == ["a.svc", "10.0.0.1"]
    certificate.verify_directly_issued_by(authority.certificate)


def test_key_identifiers_link_the_certificate_to_its_ca() -> None:
    authority = make_authority(NOW, 10 * DAY)
    certificate = issue_serving(authority, parse_names(["a"]), NOW, DAY).certificate
    of_ca = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    pointer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    assert pointer.value.key_identifier == of_ca.value.digest


def test_certificates_are_dated_back_for_clocks_that_are_behind() -> None:
    authority = make_authority(NOW, 10 * DAY)
    certificate = issue_serving(authority, parse_names(["a"]), NOW, DAY).certificate
    assert authority.certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate.not_valid_after_utc == NOW + DAY


def test_a_serving_certificate_does_not_outlive_its_ca() -> None:
    authority = make_authority(NOW, 10 * DAY)
    certificate = issue_serving(authority, parse_names(["a"]), NOW, 100 * DAY).certificate
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_name_too_long_for_a_common_name_still_gets_a_certificate() -> None:
    authority = make_authority(NOW, 10 * DAY)
    name = ".".join(["a" * 40, "b" * 40, "svc"])
    certificate = issue_serving(authority, parse_names([name]), NOW, DAY).certificate
    assert name not in certificate.subject.rfc4514_string()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [name]


def test_serials_names_and_keys_differ_from_one_to_the_next() -> None:
    authorities = [make_authority(NOW, DAY) for _ in range(3)]
    certificates = [issue_serving(authorities[0], parse_names(["a"]), NOW, DAY) for _ in range(3)]
    everyone = [authority.certificate for authority in authorities] + [
        serving.certificate for serving in certificates
    ]
    assert len({certificate.serial_number for certificate in everyone}) == 6
    assert len({authority.certificate.subject for authority in authorities}) == 3
    assert len({serving.key.private_numbers() for serving in certificates}) == 3


def test_a_ca_without_key_identifier_can_sign_too() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    made = sign_authority(key, NOW, DAY).certificate
    bare = _rebuild(made, key, without=x509.SubjectKeyIdentifier)
    certificate = issue_serving(Authority(bare, key), parse_names(["a"]), NOW, DAY).certificate
    pointer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    expected = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    assert pointer.value.key_identifier == expected.digest


def test_a_good_ca_passes_the_check() -> None:
    authority = make_authority(NOW, DAY)
    check_authority(authority, NOW)
    assert authority.certificate.not_valid_after_utc > NOW


def test_a_ca_out_of_its_time_is_refused() -> None:
    authority = make_authority(NOW, DAY)
    with pytest.raises(CertificateError, match="expired on 2026-11-22"):
        check_authority(authority, NOW + DAY)
    with pytest.raises(CertificateError, match="not valid before"):
        check_authority(authority, NOW - DAY)


def test_a_ca_with_another_key_is_refused() -> None:
    one, other = make_authority(NOW, DAY), make_authority(NOW, DAY)
    with pytest.raises(CertificateError, match="does not belong"):
        check_authority(Authority(one.certificate, other.key), NOW)


def test_a_serving_certificate_is_refused_as_a_ca() -> None:
    authority = make_authority(NOW, DAY)
    serving = issue_serving(authority, parse_names(["a"]), NOW, DAY)
    with pytest.raises(CertificateError, match="not a CA's"):
        check_authority(Authority(serving.certificate, serving.key), NOW)


def test_a_certificate_that_says_nothing_of_signing_is_refused_as_a_ca() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    bare = _rebuild(sign_authority(key, NOW, DAY).certificate, key, without=x509.BasicConstraints)
    with pytest.raises(CertificateError, match="not a CA's"):
        check_authority(Authority(bare, key), NOW)


def _rebuild(
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    *,
    without: type[x509.ExtensionType],
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(key.public_key())
        .serial_number(certificate.serial_number)
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    for extension in certificate.extensions:
        if not isinstance(extension.value, without):
            builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder.sign(key, certificate.signature_hash_algorithm)  # type: ignore[arg-type]
