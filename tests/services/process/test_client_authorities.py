"""Clients that show a certificate, at the TLS of a server that asks for one."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from services.process.errors import CertificateError
from services.process.tls import CertificateSource
from tests.client_certificates import ClientAuthority, showing
from tests.services.process.test_tls import pair, write

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Served:
    """A server that says whose certificate it was shown."""

    def __init__(self, certificates: CertificateSource, port: int) -> None:
        self.certificates = certificates
        self.port = port

    async def ask(self, *shown: Path, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> str:
        """Who the server says we are; nothing if it doesn't speak to us."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = newest
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=showing(context, shown or None)
            )
            try:
                return (await asyncio.wait_for(reader.readline(), 60)).decode().strip()
            finally:
                writer.transport.abort()
        return ""


@contextlib.asynccontextmanager
async def served(folder: Path, authority: Path) -> AsyncIterator[Served]:
    async def tell(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("ssl_object").getpeercert()
        names = [value for part in (shown or {}).get("subject", ()) for _, value in part]
        writer.write(f"{names}\n".encode())
        await writer.drain()
        writer.close()

    certificates = CertificateSource(*write(folder, pair()), client_ca=authority)
    certificates.load()
    made = Served(certificates, 0)
    server = await asyncio.start_server(tell, "127.0.0.1", 0, ssl=certificates.context)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@pytest.mark.parametrize("newest", VERSIONS)
def test_only_a_client_with_a_certificate_that_counts_gets_through(
    tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    authority, other = ClientAuthority(tmp_path), ClientAuthority(tmp_path, "other-ca")
    client, stranger = authority.issue("kube-apiserver"), other.issue("stranger")
    expired = authority.issue("expired", days=-1)

    async def scenario() -> None:
        async with served(tmp_path, authority.path) as server:
            assert await server.ask(*client, newest=newest) == "['kube-apiserver']"
            assert await server.ask(newest=newest) == ""
            assert await server.ask(*stranger, newest=newest) == ""
            assert await server.ask(*expired, newest=newest) == ""

    uvloop.run(scenario())


def test_the_authorities_are_followed_and_bad_ones_leave_the_old(tmp_path: Path) -> None:
    old, fresh = ClientAuthority(tmp_path), ClientAuthority(tmp_path, "fresh-ca")
    client, later = old.issue("early"), fresh.issue("later")

    async def scenario() -> None:
        async with served(tmp_path, old.path) as server:
            certificates = server.certificates
            assert not certificates.refresh()
            old.path.write_bytes(b"# nothing in it\n")
            with capture_logs() as logs:
                assert not certificates.refresh()
                assert not certificates.refresh()
            [line] = [each for each in logs if each["log_level"] == "warning"]
            assert line["event"] == "certificate files not used, the old stay in use"
            assert "client-ca.crt holds no certificates of CAs" in line["reason"]
            assert (await server.ask(*client), await server.ask(*later)) == ("['early']", "")
            before = certificates.expires
            write(tmp_path, pair(ends=datetime.now(UTC) + timedelta(days=60)))
            assert not certificates.refresh()
            assert certificates.expires != before, "the pair is renewed with the old CAs"
            assert (await server.ask(*client), await server.ask(*later)) == ("['early']", "")
            old.path.write_bytes(b"# both \xc3\xbc\n" + old.pem + fresh.pem)
            assert certificates.refresh()
            assert (certificates.error, certificates.failures) == ("", 2)
            assert await server.ask(*client) == "['early']"
            assert await server.ask(*later) == "['later']"
            old.path.write_bytes(fresh.pem)
            assert certificates.refresh()
            assert (await server.ask(*client), await server.ask(*later)) == ("", "['later']")

    uvloop.run(scenario())


def test_a_file_without_authorities_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, message in (
        ("tls.key", r"tls\.key holds no certificates of CAs"),
        ("empty", "empty holds no certificates of CAs: Empty"),
        ("none", "none: No such file"),
    ):
        source = CertificateSource(*write(tmp_path, pair()), client_ca=tmp_path / name)
        with pytest.raises(CertificateError, match=message):
            source.load()
