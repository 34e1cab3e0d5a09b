"""`accelbind certs show` and `renew`, on a folder and on a cluster."""

import asyncio
import hashlib
import json
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.authority import utc_now
from certs.certificates import fingerprint, is_signed_by
from certs.folder import issue
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.running import Done, run, run_process
from tests.certs.cluster import reconcile, serving, the_bundle

pytestmark = pytest.mark.anyio


async def certs(*arguments: str | Path, api: ApiServerStandIn) -> Done:
    """Run `accelbind certs …` on a cluster that this process serves."""
    flags = ("--kubeconfig", api.kubeconfig_path)
    return await asyncio.to_thread(run_process, "certs", *arguments, *flags)


def test_a_folder_is_shown_without_its_keys(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["hook.svc", "127.0.0.1"])
    text = run("certs", "show", "--dir", tmp_path)
    assert (text.returncode, text.stderr) == (0, "")
    assert "hook.svc, 127.0.0.1" in text.stdout
    shown = run("certs", "show", "--dir", tmp_path, "-o", "json")
    ca, pair = json.loads(shown.stdout)["certificates"]
    assert (ca["role"], pair["role"]) == ("CA", "serving")
    assert pair["names"] == ["hook.svc", "127.0.0.1"]
    assert pair["key"] == ca["key"] == "matches"
    assert 364 < pair["daysLeft"] <= 365
    der = ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())
    assert pair["fingerprint"].replace(":", "").lower() == hashlib.sha256(der).hexdigest()
    assert issued.key.read_text().splitlines()[1] not in shown.stdout + text.stdout


@pytest.mark.parametrize("flags", [("--lifetime", "90d"), ("--days", "90", "--ca-days", "3650")])
def test_a_folder_is_renewed_for_the_names_that_it_has(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    issued = issue(tmp_path, ["hook.svc", "127.0.0.1"])
    done = run("certs", "renew", "--dir", tmp_path, *flags)
    assert (done.returncode, "hook.svc, 127.0.0.1" in done.stdout) == (0, True)
    made = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    assert made.not_valid_after_utc - made.not_valid_before_utc == timedelta(days=90, hours=1)
    assert run("certs", "renew", "--dir", tmp_path, "--ca").returncode == 2
    done = run("certs", "issue", "--dir", tmp_path, "--name", "a", flags[0], "100000000000")
    assert (done.returncode, "at most 36500d" in done.stderr) == (2, True)


async def test_a_cluster_is_shown(api: ApiServerStandIn) -> None:
    await reconcile(api)
    [ca] = the_bundle(api)
    api.drop("ValidatingWebhookConfiguration", "accelbind")
    shown = json.loads((await certs("show", "-o", "json", api=api)).stdout)
    assert [one["role"] for one in shown["certificates"]] == ["CA", "serving"]
    assert [one["fingerprints"] for one in shown["bundles"]] == [[fingerprint(ca)]] * 2
    assert shown["missing"] == ["validatingwebhookconfigurations/accelbind"]


async def test_renewing_now_replaces_the_certificate_and_by_request_the_ca(
    api: ApiServerStandIn,
) -> None:
    await reconcile(api)
    [ca], first = the_bundle(api), serving(api)
    done = await certs("renew", "--lifetime", "30d", api=api)
    assert (done.returncode, done.stderr) == (0, "")
    assert serving(api) != first
    assert the_bundle(api) == (ca,)
    life = serving(api).not_valid_after_utc - utc_now()
    assert timedelta(days=29) < life <= timedelta(days=30)
    done = await certs("renew", "--ca", "--settle", "1s", api=api)
    assert done.returncode == 0, done.stderr
    assert "it serves in 1s" in done.stderr
    new, kept = the_bundle(api)
    assert kept == ca
    assert is_signed_by(serving(api), new)
