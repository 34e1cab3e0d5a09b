import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from structlog.testing import capture_logs

from services.process.errors import CertificateError
from services.process.tls import CertificateSource
from tests.odd_certificates import KEY, ODD
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
Pair = tuple[bytes, bytes]


def pair(
    kind: str = "ec",
    *,
    begins: datetime = BEGINS,
    ends: datetime = BEGINS + timedelta(days=365),
    password: bytes | None = None,
) -> Pair:
    key = (
        ec.generate_private_key(ec.SECP256R1())
        if kind == "ec"
        else rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, kind)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption(),
    )


def write(folder: Path, content: Pair) -> tuple[Path, Path]:
    paths = folder / "tls.crt", folder / "tls.key"
    for path, text in zip(paths, content, strict=True):
        path.write_bytes(text)
    return paths


def source(folder: Path, content: Pair | None = None) -> CertificateSource:
    return CertificateSource(
        *write(folder, content or pair()), clock=lambda: BEGINS.timestamp() + 86400
    )


def der(content: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(content[0].decode())


@contextlib.asynccontextmanager
async def served(certificates: CertificateSource) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(
    port: int, *, name: str | None = None, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = newest
    return await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name or "127.0.0.1"
    )


async def shown(
    port: int, *, name: str | None = None, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> bytes:
    reader, writer = await connect(port, name=name, newest=newest)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = tls.getpeercert(binary_form=True)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    assert found is not None
    return found


def test_tls_older_than_1_2_is_not_spoken(tmp_path: Path) -> None:
    certificates = source(tmp_path)
    assert certificates.context.minimum_version is ssl.TLSVersion.TLSv1_2
    names = {str(cipher["name"]) for cipher in certificates.context.get_ciphers()}
    assert all(name.startswith(("TLS_", "ECDHE-")) for name in names)


def overwrite(folder: Path, content: Pair) -> None:
    write(folder, content)


def swap_link(folder: Path, content: Pair) -> None:
    fresh = folder / f"..{len(list(folder.iterdir()))}"
    fresh.mkdir()
    write(fresh, content)
    (folder / "..new").symlink_to(fresh.name)
    (folder / "..new").replace(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(f"..data/{name}")


@pytest.mark.parametrize(("renew", "kind"), [(overwrite, "ec"), (swap_link, "rsa")])
async def test_a_renewed_pair_is_shown_however_it_came_and_open_connections_live_on(
    tmp_path: Path, renew: Callable[[Path, Pair], None], kind: str
) -> None:
    fresh = pair(kind)

    certificates = source(tmp_path)
    renew(tmp_path, pair())
    certificates.load()
    follower = asyncio.create_task(certificates.follow(interval=0.01))
    async with served(certificates) as port:
        reader, writer = await connect(port)
        renew(tmp_path, fresh)

        async def renewed() -> bool:
            return await shown(port) == der(fresh)

        await eventually_async(renewed)
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for name in (None, "webhook.example"):
                assert await shown(port, name=name, newest=newest) == der(fresh)
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()
    follower.cancel()


@pytest.mark.parametrize("kind", ["version 2", "year 0", "no such day"])
def test_a_certificate_whose_dates_cannot_be_read_is_not_used(tmp_path: Path, kind: str) -> None:
    key = KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificates = source(tmp_path, (ODD[kind], key))
    with pytest.raises(CertificateError, match="are not a certificate and its"):
        certificates.load()
    write(tmp_path, pair())
    certificates.load()
    write(tmp_path, (ODD[kind], key))
    assert not certificates.refresh()
    assert "are not a certificate and its" in certificates.error


async def test_half_a_renewal_is_told_once_and_the_old_pair_serves_on(tmp_path: Path) -> None:
    old, fresh = pair(), pair()

    certificates = source(tmp_path, old)
    certificates.load()
    async with served(certificates) as port:
        (tmp_path / "tls.crt").write_bytes(fresh[0])
        with capture_logs() as logs:
            assert not certificates.refresh()
            assert not certificates.refresh()
        assert [line["log_level"] for line in logs] == ["warning"]
        assert "not a certificate and its" in certificates.error
        assert await shown(port) == der(old)
        (tmp_path / "tls.key").write_bytes(fresh[1])
        assert certificates.refresh()
        assert certificates.error == ""
        assert await shown(port) == der(fresh)
        (tmp_path / "tls.key").rename(tmp_path / "away")
        assert not certificates.refresh()
        assert certificates.error == f"{tmp_path}/tls.key: No such file or directory"
        (tmp_path / "away").rename(tmp_path / "tls.key")
        assert certificates.refresh(), "files that come back are used again"


def test_a_new_certificate_that_has_ended_does_not_take_the_place_of_one_that_counts(
    tmp_path: Path,
) -> None:
    certificates = source(tmp_path)
    certificates.load()
    write(tmp_path, pair(ends=BEGINS + timedelta(hours=1)))
    assert not certificates.refresh()
    assert certificates.error == f"{tmp_path}/tls.crt expired on 2026-01-01T01:00:00+00:00"
    assert certificates.expires == (BEGINS + timedelta(days=365)).timestamp()
    write(tmp_path, pair(ends=BEGINS + timedelta(days=2)))
    assert certificates.refresh()
    assert certificates.expires == (BEGINS + timedelta(days=2)).timestamp()


@pytest.mark.parametrize(
    ("file", "content", "wanted"),
    [
        ("tls.crt", b"", "not a certificate and its"),
        ("tls.key", b"nonsense", "not a certificate and its"),
        ("tls.crt", b"x" * (1024 * 1024 + 1), "more than 1048576 bytes"),
    ],
)
def test_files_that_are_no_pair_are_told(
    tmp_path: Path, file: str, content: bytes, wanted: str
) -> None:
    certificates = source(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CertificateError, match=wanted):
        certificates.load()


def test_encrypted_keys_and_pipes_are_refused_without_waiting(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="not a certificate and its unencrypted key"):
        source(tmp_path, pair(password=b"secret")).load()
    certificates = source(tmp_path)
    (tmp_path / "tls.crt").unlink()
    os.mkfifo(tmp_path / "tls.crt")
    with pytest.raises(CertificateError, match="is not a regular file"):
        certificates.load()
