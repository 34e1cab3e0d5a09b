"""Certificates of a server, as its clients see them, and those that its clients show."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from structlog.testing import capture_logs

from services.process.errors import CertificateError
from services.process.tls import CertificateSource
from tests.client_certificates import ClientAuthority
from tests.odd_certificates import KEY, ODD
from tests.support import background, eventually_async

NOW = datetime.now(UTC).replace(microsecond=0)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
NO_PAIR = "not a certificate and its unencrypted key"
Pair = tuple[bytes, bytes]


def pem_of(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes = b"") -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)


def pair(
    kind: str = "ec", *, lasts: timedelta = timedelta(days=365), password: bytes = b""
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
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + lasts)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), pem_of(key, password)


def write(folder: Path, content: Pair) -> tuple[Path, Path]:
    paths = folder / "tls.crt", folder / "tls.key"
    for path, text in zip(paths, content, strict=True):
        path.write_bytes(text)
    return paths


def source(
    folder: Path, content: Pair | None = None, client_ca: Path | None = None
) -> CertificateSource:
    return CertificateSource(*write(folder, content or pair()), client_ca=client_ca)


def der(content: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(content[0].decode())


@dataclass
class Seen:
    """A connection, with the certificates that its two ends showed each other."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    server: bytes
    client: str


@contextlib.asynccontextmanager
async def served(certificates: CertificateSource) -> AsyncIterator[int]:
    """The port of a server that says whose certificate it was shown, and repeats each line."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("ssl_object").getpeercert() or {}
        names = [value for part in shown.get("subject", ()) for _, value in part]
        writer.write(f"{','.join(names)}\n".encode())
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def connected(
    port: int, *shown: Path, name: str = "127.0.0.1", newest: ssl.TLSVersion = VERSIONS[-1]
) -> AsyncIterator[Seen]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = newest
    if shown:
        context.load_cert_chain(shown[0], shown[1])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name
    )
    try:
        line = await asyncio.wait_for(reader.readline(), 60)
        if not line:
            raise ConnectionError
        server = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        yield Seen(reader, writer, server, line.decode().strip())
    finally:
        writer.transport.abort()


async def shown(port: int, *, name: str = "x", newest: ssl.TLSVersion = VERSIONS[-1]) -> bytes:
    async with connected(port, name=name, newest=newest) as seen:
        return seen.server


async def asked(port: int, *pair: Path, newest: ssl.TLSVersion = VERSIONS[-1]) -> str:
    """Who the server says we are; nothing if it doesn't speak to us."""
    with contextlib.suppress(OSError):
        async with connected(port, *pair, newest=newest) as seen:
            return seen.client
    return ""


def test_tls_older_than_1_2_is_not_spoken(tmp_path: Path) -> None:
    certificates = source(tmp_path)
    assert certificates.context.minimum_version is ssl.TLSVersion.TLSv1_2
    names = {str(cipher["name"]) for cipher in certificates.context.get_ciphers()}
    assert all(name.startswith(("TLS_", "ECDHE-")) for name in names)


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


@pytest.mark.parametrize(("renew", "kind"), [(write, "ec"), (swap_link, "rsa")])
async def test_a_renewed_pair_is_shown_however_it_came_and_open_connections_live_on(
    tmp_path: Path, renew: Callable[[Path, Pair], object], kind: str
) -> None:
    fresh = pair(kind)
    certificates = source(tmp_path)
    renew(tmp_path, pair())
    certificates.load()
    following = background(certificates.follow(interval=0.01))
    async with following, served(certificates) as port, connected(port) as old:
        renew(tmp_path, fresh)

        async def renewed() -> bool:
            return await shown(port) == der(fresh)

        await eventually_async(renewed)
        for newest in VERSIONS:
            for name in ("127.0.0.1", "webhook.example"):
                assert await shown(port, name=name, newest=newest) == der(fresh)
        old.writer.write(b"still here\n")
        assert await old.reader.readline() == b"still here\n"


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
        assert NO_PAIR in certificates.error
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
    write(tmp_path, pair(lasts=-timedelta(hours=1)))
    assert not certificates.refresh()
    ended = (NOW - timedelta(hours=1)).isoformat()
    assert certificates.error == f"{tmp_path}/tls.crt expired on {ended}"
    assert certificates.expires == (NOW + timedelta(days=365)).timestamp()
    write(tmp_path, pair(lasts=timedelta(days=2)))
    assert certificates.refresh()
    assert certificates.expires == (NOW + timedelta(days=2)).timestamp()


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ((b"", pair()[1]), NO_PAIR),
        ((pair()[0], b"nonsense"), NO_PAIR),
        ((b"x" * (1024 * 1024 + 1), b""), "more than 1048576 bytes"),
        (pair(password=b"secret"), NO_PAIR),
        # dates that cannot be read
        *(((ODD[kind], pem_of(KEY)), NO_PAIR) for kind in ("version 2", "year 0", "no such day")),
    ],
)
def test_files_that_are_no_pair_are_told_at_the_start_and_later(
    tmp_path: Path, content: Pair, wanted: str
) -> None:
    with pytest.raises(CertificateError, match=wanted):
        source(tmp_path, content).load()
    certificates = source(tmp_path)
    certificates.load()
    write(tmp_path, content)
    assert not certificates.refresh()
    assert wanted in certificates.error


def test_pipes_are_refused_without_waiting(tmp_path: Path) -> None:
    certificates = source(tmp_path)
    (tmp_path / "tls.crt").unlink()
    os.mkfifo(tmp_path / "tls.crt")
    with pytest.raises(CertificateError, match="is not a regular file"):
        certificates.load()


# Certificates of clients, in the event loop of the webhook


@pytest.mark.parametrize("newest", VERSIONS)
def test_only_a_client_with_a_certificate_that_counts_gets_through(
    tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    authority, other = ClientAuthority(tmp_path), ClientAuthority(tmp_path, "other-ca")
    client, stranger = authority.issue("kube-apiserver"), other.issue("stranger")
    certificates = source(tmp_path, client_ca=authority.path)
    certificates.load()

    async def scenario() -> None:
        async with served(certificates) as port:
            assert await asked(port, *client, newest=newest) == "kube-apiserver"
            for refused in ((), stranger, authority.issue("expired", days=-1)):
                assert await asked(port, *refused, newest=newest) == ""

    uvloop.run(scenario())


def test_the_authorities_are_followed_and_bad_ones_leave_the_old(tmp_path: Path) -> None:
    old, fresh = ClientAuthority(tmp_path), ClientAuthority(tmp_path, "fresh-ca")
    early, later = old.issue("early"), fresh.issue("later")
    certificates = source(tmp_path, client_ca=old.path)
    certificates.load()

    async def scenario() -> None:
        async with served(certificates) as port:
            old.path.write_bytes(b"# nothing in it\n")
            assert not certificates.refresh()
            assert "client-ca.crt holds no certificates of CAs" in certificates.error
            write(tmp_path, pair(lasts=timedelta(days=60)))
            assert not certificates.refresh()
            renewed = (NOW + timedelta(days=60)).timestamp()
            assert certificates.expires == renewed, "the pair is renewed with the old CAs"
            assert (await asked(port, *early), await asked(port, *later)) == ("early", "")
            old.path.write_bytes(b"# both \xc3\xbc\n" + old.pem + fresh.pem)
            assert certificates.refresh()
            assert (certificates.error, certificates.failures) == ("", 2)
            assert (await asked(port, *early), await asked(port, *later)) == ("early", "later")
            old.path.write_bytes(fresh.pem)
            assert certificates.refresh()
            assert (await asked(port, *early), await asked(port, *later)) == ("", "later")

    uvloop.run(scenario())


def test_a_file_without_authorities_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, message in (
        ("tls.key", r"tls\.key holds no certificates of CAs"),
        ("empty", "empty holds no certificates of CAs: Empty"),
        ("none", "none: No such file"),
    ):
        with pytest.raises(CertificateError, match=message):
            source(tmp_path, client_ca=tmp_path / name).load()
