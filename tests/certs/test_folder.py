import os
import ssl
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.authority import create_authority
from certs.folder import issue
from services.process.errors import CertificateError
from tests.certs.memory import encrypted_key, rebuilt
from tests.odd_certificates import ODD
from tests.support import require

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("-verify_hostname", "hook.svc"),
        ("-verify_hostname", "a.hooks.svc"),
        ("-verify_ip", "::1"),
    ],
)
def test_openssl_accepts_every_name_strictly(tmp_path: Path, kind: str, name: str) -> None:
    openssl = require("openssl")
    issued = issue(tmp_path, ["hook.svc", "127.0.0.1", "::1", "*.hooks.svc"])
    how = ["-x509_strict", "-purpose", "sslserver", kind, name]
    done = subprocess.run(
        [openssl, "verify", *how, "-CAfile", issued.ca_certificate, issued.certificate],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"{issued.certificate}: OK")


def test_only_the_owner_reads_the_keys_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        issue(tmp_path, ["hook.svc"])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o644, "tls.key": 0o600}


def test_a_pair_that_can_not_be_written_completely_leaves_the_old_one(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["a.svc"])
    (tmp_path / ".tls.crt.new").mkdir()  # as a full disk: the certificate can't be written
    with pytest.raises(CertificateError, match="cannot be written"):
        issue(tmp_path, ["b.svc"])
    ssl.create_default_context().load_cert_chain(issued.certificate, issued.key)


def test_a_ca_is_used_again(tmp_path: Path) -> None:
    issue(tmp_path, ["hook.svc"])
    authority = [(tmp_path / name).read_bytes() for name in ("ca.crt", "ca.key")]
    again = issue(tmp_path, ["hook.svc"])
    assert [(tmp_path / name).read_bytes() for name in ("ca.crt", "ca.key")] == authority
    ca, serving = (
        x509.load_pem_x509_certificate(path.read_bytes())
        for path in (again.ca_certificate, again.certificate)
    )
    serving.verify_directly_issued_by(ca)
    life = serving.not_valid_after_utc - serving.not_valid_before_utc
    assert life == timedelta(days=365, hours=1)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("ca.crt", b"\xff" * 100, "unreadable or of another key"),
        ("ca.crt", b"x" * 1_100_000, "more than 1048576 bytes"),
        ("ca.key", b"", "ca.key cannot be read"),
        ("ca.key", None, "ca.key cannot be read"),
        ("ca.key", encrypted_key(), "ca.key cannot be read"),
        ("ca.crt", None, "unreadable or of another key"),
        ("ca.key", create_authority(NOW, DAY).key_pem, "unreadable or of another key"),
    ],
)
def test_a_ca_that_cannot_sign_is_refused_and_nothing_is_written(
    tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    issue(tmp_path, ["hook.svc"])
    path = tmp_path / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    before = (tmp_path / "tls.crt").read_bytes()
    with pytest.raises(CertificateError, match=message) as caught:
        issue(tmp_path, ["hook.svc"])
    assert str(tmp_path) in str(caught.value)
    assert (tmp_path / "tls.crt").read_bytes() == before


def test_a_ca_that_accelbind_has_not_created_is_refused(tmp_path: Path) -> None:
    theirs = rebuilt(create_authority(NOW, DAY), "company")
    for content, message in (
        (theirs.certificate.pem, r"not created this CA: CN=company: remove ca\.key and ca\.crt"),
        (ODD["version 2"], "unreadable or of another key"),
    ):
        (tmp_path / "ca.crt").write_bytes(content)
        (tmp_path / "ca.key").write_bytes(theirs.key_pem)
        with pytest.raises(CertificateError, match=message):
            issue(tmp_path, ["hook.svc"], now=NOW)
    assert not (tmp_path / "tls.crt").exists()
