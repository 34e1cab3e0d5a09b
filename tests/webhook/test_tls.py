"""The TLS of the running webhook: what it speaks, and certificates that change for the worse."""

import contextlib
import os
import shutil
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from certs.folder import issue
from tests.support import eventually
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body
from tests.webhook.running import Webhook, start_webhook

FAILING = "accelbind_certificate_reload_failing"
FAILURES = "accelbind_certificate_reload_failures_total"
ENDS = "accelbind_certificate_expiry_timestamp_seconds"
NOT_USED = "new certificate not used, the old one stays in use"


@contextlib.contextmanager
def lenient_server(folder: Path) -> Iterator[int]:
    """A server that speaks whatever OpenSSL can: what we refuse is no fault of the client's."""
    issue(folder, ["localhost"])
    context = lenient(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def lenient(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    if protocol == ssl.PROTOCOL_TLS_CLIENT:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def spoken(port: int, change: Callable[[ssl.SSLContext], None]) -> str:
    """The suite that a client and a server agree on; empty if they don't."""
    context = lenient(ssl.PROTOCOL_TLS_CLIENT)
    change(context)
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain) as secured,
    ):
        suite = secured.cipher()
        return suite[0] if suite else ""
    return ""


def version(newest: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.maximum_version = newest

    return change


def suites(names: str) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{names}:@SECLEVEL=0")

    return change


OLD = [version(ssl.TLSVersion.TLSv1), version(ssl.TLSVersion.TLSv1_1)]
WEAK = [suites("ECDHE-ECDSA-AES128-SHA"), suites("ECDHE-ECDSA-AES256-SHA384")]
MODERN = [
    version(ssl.TLSVersion.TLSv1_3),
    suites("ECDHE-ECDSA-AES128-GCM-SHA256"),
    suites("ECDHE-ECDSA-CHACHA20-POLY1305"),
]


def test_old_versions_and_weak_suites_are_not_spoken(start: Starter, tmp_path: Path) -> None:
    webhook = start()
    with lenient_server(tmp_path / "lenient") as other:
        for change in OLD + WEAK:
            assert spoken(other, change)
            assert spoken(webhook.port, change) == ""
        for change in MODERN:
            assert spoken(webhook.port, change)


def serial(webhook: Webhook) -> str:
    return ssl.get_server_certificate(("localhost", webhook.port))


def half(folder: Path, fresh: Path) -> None:
    whole = (fresh / "tls.crt").read_bytes()
    (folder / "tls.crt").write_bytes(whole[: len(whole) // 2])


def mismatched(folder: Path, fresh: Path) -> None:
    shutil.copy(fresh / "tls.crt", folder / "tls.crt")


def with_passphrase(folder: Path, fresh: Path) -> None:
    key = serialization.load_pem_private_key((fresh / "tls.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    shutil.copy(fresh / "tls.crt", folder / "tls.crt")
    (folder / "tls.key").write_bytes(locked)


def unreadable(folder: Path, _fresh: Path) -> None:
    (folder / "tls.key").unlink()
    (folder / "tls.key").mkdir()  # a mode would not keep root from reading


def gone(folder: Path, _fresh: Path) -> None:
    (folder / "tls.crt").unlink()


def empty(folder: Path, _fresh: Path) -> None:
    os.truncate(folder / "tls.key", 0)


@pytest.mark.parametrize("spoil", [half, mismatched, with_passphrase, unreadable, gone, empty])
def test_what_cannot_be_used_leaves_the_old_pair_serving_and_is_told(
    start: Starter, tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    webhook = start()
    before, ends = serial(webhook), webhook.metric(ENDS)
    fresh = tmp_path / "fresh"
    shutil.copytree(webhook.tls, fresh)
    issue(fresh, ["localhost"], days=30)
    spoil(webhook.tls, fresh)
    assert eventually(lambda: webhook.metric(FAILING) == 1)
    assert webhook.metric(FAILURES) >= 1  # more, if it looked between two of our steps
    assert (serial(webhook), webhook.metric(ENDS)) == (before, ends)
    assert webhook.ask("/mutate", body()).status == 200
    problems = [str(line["problem"]) for line in webhook.events(NOT_USED)]
    assert len(problems) == len(set(problems)), "each is told once"
    assert str(webhook.tls) in problems[-1]
    assert webhook.plain("/readyz").status == 200
    if (webhook.tls / "tls.key").is_dir():
        (webhook.tls / "tls.key").rmdir()
    for name in ("tls.crt", "tls.key"):
        shutil.copy(fresh / name, webhook.tls / name)
    assert eventually(lambda: webhook.metric(FAILING) == 0)
    assert serial(webhook) != before
    assert webhook.metric(ENDS) < ends


def test_an_expired_pair_is_shown_where_it_is_what_there_is_and_warned_of(
    start: Starter, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    issue(old, ["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=2))
    webhook = start("--tls-cert", old / "tls.crt", "--tls-key", old / "tls.key")
    (line,) = webhook.events("certificate loaded, but it is not valid now")
    assert line["level"] == "warning"
    shutil.copy(old / "ca.crt", webhook.tls / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        webhook.ask("/mutate", body())


def test_an_expired_pair_does_not_take_the_place_of_one_that_counts(
    start: Starter, tmp_path: Path
) -> None:
    webhook = start()
    before = serial(webhook)
    issue(tmp_path / "old", ["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=2))
    for name in ("tls.crt", "tls.key"):
        shutil.copy(tmp_path / "old" / name, webhook.tls / name)
    eventually(
        lambda: any("expired on" in str(line["problem"]) for line in webhook.events(NOT_USED))
    )
    assert serial(webhook) == before
    assert webhook.metric(FAILING) == 1


def test_a_secret_is_followed_as_the_kubelet_swaps_it(tmp_path: Path) -> None:
    secret, ca = tmp_path / "secret", tmp_path / "ca"
    secret.mkdir()

    def swap(number: int) -> None:
        issue(ca, ["localhost", "127.0.0.1"])
        fresh = secret / f"..{number}"
        fresh.mkdir()
        for name in ("tls.crt", "tls.key"):
            shutil.copy(ca / name, fresh)
            if not (secret / name).is_symlink():
                (secret / name).symlink_to(f"..data/{name}")
        (secret / "..data_tmp").symlink_to(fresh.name)
        (secret / "..data_tmp").replace(secret / "..data")
        for old in secret.glob("..[0-9]*"):
            if old != fresh:
                shutil.rmtree(old)

    swap(0)
    flags = ("--tls-cert", secret / "tls.crt", "--tls-key", secret / "tls.key")
    webhook = start_webhook(tmp_path, *flags, mappings={})

    def shown() -> bytes:
        return serial(webhook).encode()

    with webhook.process:
        for number in range(1, 4):
            swap(number)
            assert eventually(lambda: shown() == (secret / "tls.crt").read_bytes())
        # A look that falls into a swap sees half of each, and tells so.
        assert len(webhook.events(NOT_USED)) < number
