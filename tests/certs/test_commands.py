"""`accelbind certs show` and `renew`, on a folder and on a cluster."""

import asyncio
import base64
import hashlib
import json
import ssl
from pathlib import Path

from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.running import Done, run, run_process
from tests.certs.cluster import reconcile, serving, the_bundle


async def certs(*arguments: str | Path, api: ApiServerStandIn) -> Done:
    """Run `accelbind certs …` on a cluster that this process serves."""
    flags = ("--api-server", api.address)
    return await asyncio.to_thread(run_process, "certs", *arguments, *flags)


def test_an_issued_folder_is_shown_without_its_keys(tmp_path: Path) -> None:
    names = ("--name", "hook.svc", "--name", "127.0.0.1")
    issued = json.loads(run("certs", "issue", "--dir", tmp_path, *names, "-o", "json").stdout)
    bundle, certificate = ((tmp_path / name).read_bytes() for name in ("ca.crt", "tls.crt"))
    assert base64.b64decode(issued.pop("caBundle")) == bundle
    text = run("certs", "show", "--dir", tmp_path)
    assert (text.returncode, text.stderr) == (0, "")
    assert "hook.svc, 127.0.0.1" in text.stdout
    shown = run("certs", "show", "--dir", tmp_path, "-o", "json")
    assert json.loads(shown.stdout) == issued
    ca, pair = issued["certificates"]
    assert (ca["role"], pair["role"]) == ("CA", "serving")
    assert pair["names"] == ["hook.svc", "127.0.0.1"]
    assert pair["key"] == ca["key"] == "matches"
    assert 364 < pair["daysLeft"] <= 365
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    assert pair["fingerprint"].replace(":", "").lower() == hashlib.sha256(der).hexdigest()
    key = (tmp_path / "tls.key").read_text().splitlines()[1]
    assert key not in shown.stdout + text.stdout


async def test_a_cluster_is_shown(api: ApiServerStandIn) -> None:
    await reconcile(api)
    [ca] = the_bundle(api)
    api.drop("MutatingWebhookConfiguration", "accelbind")
    shown = json.loads((await certs("show", "-o", "json", api=api)).stdout)
    assert [one["role"] for one in shown["certificates"]] == ["CA", "serving"]
    assert [one["fingerprints"] for one in shown["bundles"]] == [[ca.fingerprint]] * 2


async def test_renewing_now_replaces_the_certificate_and_by_request_the_ca(
    api: ApiServerStandIn,
) -> None:
    await reconcile(api)
    [ca], first = the_bundle(api), serving(api)
    done = await certs("renew", "-o", "json", api=api)
    assert (done.returncode, done.stderr) == (0, "")
    assert serving(api) != first
    assert serving(api).fingerprint in done.stdout
    assert the_bundle(api) == (ca,)
    done = await certs("renew", "--ca", "--settle", "1s", api=api)
    assert done.returncode == 0, done.stderr
    new, kept = the_bundle(api)
    assert kept == ca
    assert serving(api).is_signed_by(new)
    shown = json.loads((await certs("show", "-o", "json", api=api)).stdout)
    assert [one["role"] for one in shown["certificates"]] == ["CA", "old CA", "serving"]
