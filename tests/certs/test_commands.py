"""`accelbind certs show|verify|renew|inject`, on a folder and on a cluster."""

import asyncio
import hashlib
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from certs.authority import certificate_pem, make_authority, utc_now
from certs.folder import issue
from certs.reading import fingerprint, signed
from certs.settings import CertsSettings
from services.process.settings import load
from services.process.tls import CertificateSource
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import (
    CA,
    MUTATING,
    TLS,
    VALIDATING,
    Cluster,
    bundles,
    configuration,
    edit_secret,
    secret,
    serving,
    the_bundle,
)
from tests.support import REPOSITORY, accelbind_command, clean_environment

pytestmark = pytest.mark.anyio


@dataclass
class Done:
    code: int
    out: str
    err: str


async def certs(*arguments: str | Path, api: ApiServerStandIn | None = None) -> Done:
    """Runs `accelbind certs …` to its end."""
    where = () if api is None else ("--kubeconfig", api.kubeconfig_path)
    process = await asyncio.create_subprocess_exec(
        *accelbind_command("certs", *arguments, *where),
        cwd=REPOSITORY,
        env=clean_environment() | {"TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def tls_server(certificate: Path, key: Path) -> AsyncIterator[str]:
    """A server that shows a pair; its URL."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    source = CertificateSource(certificate, key)
    source.load()
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=source.context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_folder_is_shown_without_its_keys(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["hook.svc", "127.0.0.1"])
    text = await certs("show", "--dir", tmp_path)
    assert (text.code, text.err) == (0, "")
    assert "hook.svc, 127.0.0.1" in text.out
    shown = await certs("show", "--dir", tmp_path, "-o", "json")
    ca, pair = json.loads(shown.out)["certificates"]
    assert (ca["role"], pair["role"]) == ("CA", "serving")
    assert pair["names"] == ["hook.svc", "127.0.0.1"]
    assert pair["key"] == ca["key"] == "matches"
    assert 364 < pair["daysLeft"] <= 365
    der = ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())
    assert pair["fingerprint"].replace(":", "").lower() == hashlib.sha256(der).hexdigest()
    secret_part = issued.key.read_text().splitlines()[1]
    assert secret_part not in shown.out + text.out


async def test_a_good_folder_verifies_and_a_wrong_name_does_not(tmp_path: Path) -> None:
    issue(tmp_path, ["hook.svc"])
    assert (await certs("verify", "--dir", tmp_path, "--name", "hook.svc")).code == 0
    bad = await certs("verify", "--dir", tmp_path, "--name", "other.svc", "-o", "json")
    assert bad.code == 1
    [wrong] = [one for one in json.loads(bad.out) if not one["good"]]
    assert wrong["check"] == "names"
    assert wrong["said"].endswith("is for hook.svc, not other.svc")
    assert wrong["remedy"]


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        ("foreign ca", "chain"),
        ("no key", "key"),
        ("no certificate", "chain"),
        ("no ca", "ca"),
        ("ends soon", "expiry"),
    ],
)
async def test_what_does_not_hold_together_is_named(
    tmp_path: Path, damage: str, check: str
) -> None:
    issue(tmp_path, ["hook.svc"], days=3 if damage == "ends soon" else 90)
    match damage:
        case "foreign ca":
            other = make_authority(utc_now(), timedelta(days=100))
            (tmp_path / "ca.crt").write_bytes(certificate_pem(other.certificate))
        case "no key":
            (tmp_path / "tls.key").unlink()
        case "no certificate":
            (tmp_path / "tls.crt").write_text("nothing")
        case "no ca":
            (tmp_path / "ca.crt").unlink()
    done = await certs("verify", "--dir", tmp_path)
    assert done.code == 1
    assert f"BAD  {check}" in done.out


async def test_what_a_webhook_shows_is_compared_with_the_folder(tmp_path: Path) -> None:
    issue(tmp_path / "a", ["127.0.0.1"])
    issue(tmp_path / "b", ["127.0.0.1"])
    async with tls_server(tmp_path / "a" / "tls.crt", tmp_path / "a" / "tls.key") as url:
        good = await certs("verify", "--dir", tmp_path / "a", "--url", url)
        assert (good.code, "clients accept it" in good.out) == (0, True)
        bad = await certs("verify", "--dir", tmp_path / "b", "--url", url)
        assert bad.code == 1
        assert "BAD  served" in bad.out
        issue(tmp_path / "a", ["127.0.0.1"])
        stale = await certs("verify", "--dir", tmp_path / "a", "--url", url)
        assert "trusted, but not what is in" in stale.out
    gone = await certs("verify", "--dir", tmp_path / "a", "--url", url)
    assert (gone.code, "no TLS with" in gone.out) == (1, True)
    assert (await certs("verify", "--dir", tmp_path / "a", "--url", "http://x")).code == 2


async def test_a_folder_is_renewed_for_the_names_that_it_has(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["hook.svc", "127.0.0.1"])
    before = issued.certificate.read_bytes()
    done = await certs("renew", "--dir", tmp_path)
    assert (done.code, "for hook.svc, 127.0.0.1" in done.out) == (0, True)
    assert issued.certificate.read_bytes() != before
    assert (await certs("renew", "--dir", tmp_path, "--ca")).code == 2


@pytest.mark.parametrize(
    ("made_for", "flags", "then"),
    [(365, (), 365), (30, (), 30), (30, ("--lifetime", "90d"), 90), (3650, (), 365)],
    ids=["as usual", "as the one before", "as told", "not as one that its CA has cut"],
)
async def test_a_folder_is_renewed_for_as_long_as_before(
    tmp_path: Path, made_for: int, flags: tuple[str, ...], then: int
) -> None:
    issued = issue(tmp_path, ["hook.svc"], days=made_for, ca_days=1000)
    assert (await certs("renew", "--dir", tmp_path, *flags)).code == 0
    made = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    assert made.not_valid_after_utc - made.not_valid_before_utc == timedelta(days=then, hours=1)


async def test_a_folder_is_renewed_for_whole_days_only(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["hook.svc"])
    before = issued.certificate.read_bytes()
    for lifetime in ("2h", "36h"):
        done = await certs("renew", "--dir", tmp_path, "--lifetime", lifetime)
        assert (done.code, "whole days" in done.err) == (2, True), done.err
    assert issued.certificate.read_bytes() == before


async def test_a_cluster_is_shown_and_verified(cluster: Cluster, tmp_path: Path) -> None:
    api = cluster.api
    empty = await certs("verify", api=api)
    assert (empty.code, "has no CA" in empty.out) == (1, True)
    await (await cluster.keeper()).round()
    shown = json.loads((await certs("show", "-o", "json", api=api)).out)
    assert [one["role"] for one in shown["certificates"]] == ["CA", "serving"]
    [ca] = the_bundle(api)
    assert [one["fingerprints"] for one in shown["bundles"]] == [[fingerprint(ca)]] * 3
    assert "mutatingwebhookconfigurations/accelbind" in (await certs("show", api=api)).out
    lacking = await certs("verify", api=api)
    assert (lacking.code, "BAD  names" in lacking.out) == (1, True), "for the Service's short names"
    await certs("renew", api=api)
    for name, content in secret(api, TLS).items():
        (tmp_path / name).write_bytes(content)
    async with tls_server(tmp_path / "tls.crt", tmp_path / "tls.key") as url:
        good = await certs("verify", "--url", url, api=api)
    assert (good.code, good.err) == (0, ""), good.out
    api.put(configuration(VALIDATING))
    wiped = await certs("verify", api=api)
    assert (wiped.code, "validatingwebhookconfigurations/accelbind[0] has no" in wiped.out) == (
        1,
        True,
    )


async def test_renewing_now_replaces_the_certificate_and_keeps_the_ca(cluster: Cluster) -> None:
    api = cluster.api
    await (await cluster.keeper()).round()
    [ca], first = the_bundle(api), serving(api)
    done = await certs("renew", "--lifetime", "30d", api=api)
    assert (done.code, done.err) == (0, "")
    assert serving(api) != first
    assert the_bundle(api) == (ca,)
    life = serving(api).not_valid_after_utc - utc_now()
    assert timedelta(days=29) < life <= timedelta(days=30)


async def test_changing_the_ca_now_puts_both_into_the_bundle_first(cluster: Cluster) -> None:
    api = cluster.api
    await (await cluster.keeper()).round()
    [old] = the_bundle(api)
    done = await certs("renew", "--ca", "--settle", "1s", api=api)
    assert done.code == 0, done.err
    assert "it serves in 1s" in done.err
    new, kept = the_bundle(api)
    assert kept == old
    assert signed(serving(api), new)


async def test_the_bundle_is_put_in_by_hand(cluster: Cluster, tmp_path: Path) -> None:
    api = cluster.api
    assert (await certs("inject", api=api)).code == 1, "there is no CA"
    await (await cluster.keeper()).round()
    api.put(configuration(MUTATING))
    done = await certs("inject", api=api)
    assert done.code == 0, done.err
    assert [line.split("  ")[1] for line in done.out.splitlines()] == [
        "bundle put in",
        "has it already",
    ]
    assert b"" not in bundles(api)
    issued = issue(tmp_path, ["hook.svc"])
    assert (await certs("inject", "--dir", tmp_path, api=api)).code == 0
    assert set(bundles(api)) == {issued.ca_certificate.read_bytes()}
    for kind in (MUTATING, VALIDATING):
        api.drop(kind, "accelbind")
    gone = await certs("inject", api=api)
    assert (gone.code, "no webhook configuration called accelbind" in gone.err) == (1, True)


async def test_commands_refuse_a_ca_key_that_is_somebodys(cluster: Cluster) -> None:
    encrypted = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    edit_secret(cluster.api, CA, ca_key=encrypted)
    done = await certs("renew", api=cluster.api)
    assert done.code == 1
    assert "the key is encrypted" in done.err
    assert secret(cluster.api, CA)["ca.key"] == encrypted


async def test_verify_tells_of_a_ca_key_that_only_a_person_can_replace(tmp_path: Path) -> None:
    issue(tmp_path, ["hook.svc"])
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (tmp_path / "ca.key").write_bytes(key.private_bytes(*pem, serialization.NoEncryption()))
    done = await certs("verify", "--dir", tmp_path, "-o", "json")
    [wrong] = [one for one in json.loads(done.out) if not one["good"]]
    assert wrong["said"].endswith("the key is RSA, no elliptic curve key")
    assert "take both out" in wrong["remedy"]
    assert "certs run" not in wrong["remedy"], "which refuses it, too"


def test_the_names_of_the_service_are_in_the_certificate() -> None:
    settings = load(CertsSettings, {"namespace": "a", "service": "b", "name": "c.d"}, environ={})
    assert [str(name.value) for name in settings.rules.names] == ["b.a.svc", "b.a", "b", "c.d"]
