"""`accelbind certs show` and `renew`, on a folder and on a cluster."""

import asyncio
import hashlib
import json
import ssl
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.authority import utc_now
from certs.certificates import fingerprint, is_signed_by
from certs.folder import issue
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import reconcile, serving, the_bundle
from tests.support import REPOSITORY, accelbind_command, clean_environment

pytestmark = pytest.mark.anyio


@dataclass
class Done:
    code: int
    out: str
    err: str


async def certs(*arguments: str | Path, api: ApiServerStandIn | None = None) -> Done:
    """Run `accelbind certs …` to its end."""
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
    assert issued.key.read_text().splitlines()[1] not in shown.out + text.out


@pytest.mark.parametrize(
    "flags", [("--lifetime", "90d"), ("--days", "90"), ("--days", "90", "--ca-days", "3650")]
)
async def test_a_folder_is_renewed_for_the_names_that_it_has(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    issued = issue(tmp_path, ["hook.svc", "127.0.0.1"])
    done = await certs("renew", "--dir", tmp_path, *flags)
    assert (done.code, "hook.svc, 127.0.0.1" in done.out) == (0, True)
    made = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    assert made.not_valid_after_utc - made.not_valid_before_utc == timedelta(days=90, hours=1)
    assert (await certs("renew", "--dir", tmp_path, "--ca")).code == 2
    done = await certs("issue", "--dir", tmp_path, "--name", "a", flags[0], "100000000000")
    assert (done.code, "must be at most 36500d" in done.err) == (2, True)


async def test_a_cluster_is_shown(api: ApiServerStandIn) -> None:
    await reconcile(api)
    shown = json.loads((await certs("show", "-o", "json", api=api)).out)
    assert [one["role"] for one in shown["certificates"]] == ["CA", "serving"]
    [ca] = the_bundle(api)
    assert [one["fingerprints"] for one in shown["bundles"]] == [[fingerprint(ca)]] * 3
    api.drop("ValidatingWebhookConfiguration", "accelbind")
    text = (await certs("show", api=api)).out
    assert "mutatingwebhookconfigurations/accelbind" in text
    assert "validatingwebhookconfigurations/accelbind does not exist" in text


async def test_renewing_now_replaces_the_certificate_and_keeps_the_ca(
    api: ApiServerStandIn,
) -> None:
    await reconcile(api)
    [ca], first = the_bundle(api), serving(api)
    done = await certs("renew", "--lifetime", "30d", api=api)
    assert (done.code, done.err) == (0, "")
    assert serving(api) != first
    assert the_bundle(api) == (ca,)
    life = serving(api).not_valid_after_utc - utc_now()
    assert timedelta(days=29) < life <= timedelta(days=30)


async def test_changing_the_ca_now_puts_both_into_the_bundle_first(api: ApiServerStandIn) -> None:
    await reconcile(api)
    [old] = the_bundle(api)
    done = await certs("renew", "--ca", "--settle", "1s", api=api)
    assert done.code == 0, done.err
    assert "it serves in 1s" in done.err
    new, kept = the_bundle(api)
    assert kept == old
    assert is_signed_by(serving(api), new)
