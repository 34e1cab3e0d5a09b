"""What is wrong with a serving pair, where the other tests of certs do not come."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import create_authority
from certs.policy import SERVING_CERTIFICATE, SERVING_KEY, CaState, check_pair, usable_certificate
from certs.settings import CertsSettings
from services.process.settings import load
from tests.certs.memory import private_key_pem

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CA = create_authority(NOW, timedelta(days=10))


def test_a_certificate_for_clients_only_does_not_serve() -> None:
    client = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(CA.certificate.subject)
        .public_key(CA.key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(CA.key, hashes.SHA256())
    )
    pem = client.public_bytes(Encoding.PEM)
    data = {SERVING_CERTIFICATE: pem, SERVING_KEY: private_key_pem(CA.key)}
    found = check_pair(data, CaState(CA), load(CertsSettings, {}).policy, NOW)
    assert found.error == "the serving certificate is not for servers (extendedKeyUsage)"
    assert usable_certificate(data, NOW) is None
