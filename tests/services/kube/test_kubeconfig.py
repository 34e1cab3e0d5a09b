"""Kubeconfig files as people have them."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.authority import create_authority
from services.kube.client import ClusterClient
from services.kube.config import Access, load_config
from services.kube.credentials import create_tls_context
from services.process.errors import ClusterError
from tests.odd_certificates import ODD
from tests.services.kube.kubeconfigs import config_of


def config(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> dict[str, Any]:
    return config_of({"server": "https://a", **(cluster or {})}, user)


def loaded(folder: Path, content: dict[str, Any]) -> Access:
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    access = load_config(path, environment={})
    assert access is not None
    return access


def test_what_a_cluster_is_told_of_is_taken_as_it_is(tmp_path: Path) -> None:
    cluster = {
        "server": "https://10.0.0.1:6443/k8s/clusters/c-1",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
        "tls-server-name": "api.example.com",
        "proxy-url": "http://proxy:3128",
    }
    access = loaded(tmp_path, config(cluster))
    assert access.server == "https://10.0.0.1:6443/k8s/clusters/c-1"
    assert access.authority == b"authority"
    assert access.server_name == "api.example.com"
    assert access.proxy == "http://proxy:3128"
    assert access.token == "secret"  # noqa: S105 - a test's
    assert "secret" not in repr(access)


def test_files_that_a_kubeconfig_names_are_seen_from_its_folder(tmp_path: Path) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(name)
    user = {"client-certificate": "crt", "client-key": "key", "tokenFile": "token"}
    access = loaded(tmp_path, config({"certificate-authority": "ca"}, user))
    assert (access.authority, access.certificate, access.key) == (b"ca", b"crt", b"key")
    assert access.token_file == tmp_path / "token"


def test_several_files_count_together_and_the_first_one_first(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "sub" / "two"
    two.parent.mkdir()
    (two.parent / "ca").write_text("second")
    first = {"current-context": "c", "users": config()["users"], "contexts": None}
    second = config({"certificate-authority": "ca"}, {"token": "other"}) | {"current-context": "x"}
    one.write_text(yaml.safe_dump(first))
    two.write_text(json.dumps(second))
    named = f"{one}:{tmp_path / 'missing'}::{two}"
    access = load_config(environment={"KUBECONFIG": named})
    assert access is not None
    assert access.token == "secret"  # noqa: S105 - a test's
    assert access.authority == b"second", "a path is seen from the folder of its own file"


def test_what_is_wrong_with_others_does_not_matter(tmp_path: Path) -> None:
    content = config()
    content["users"].append({"name": "gone", "user": {"auth-provider": {"name": "gcp"}}})
    content["clusters"].append({"name": "odd", "cluster": {"server": 5}})
    assert loaded(tmp_path, content).server == "https://a"


NO_USER = """
current-context: c
contexts: [{name: c, context: {cluster: k}}]
clusters: [{name: k}]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not found"),
        ("{", "is not a kubeconfig"),
        ("", "is not a kubeconfig"),
        ("clusters: []\ncontexts: []", "has no current-context"),
        ("current-context: c\ncontexts: [{name: c}]", 'has no cluster ""'),
        (NO_USER, "names no user"),
    ],
)
def test_a_file_that_can_not_be_used_says_why(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ClusterError, match=message):
        load_config(path, environment={})


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"server": "htps://a"}, None, 'the server "htps://a" is not an https URL'),
        ({"server": "https://a:many"}, None, "is not an https URL"),
        ({"server": 5}, None, "is not a kubeconfig: Expected `str"),
        ({"certificate-authority-data": "x"}, None, "some of its data is not base64"),
        ({"certificate-authority": "/nowhere/ca"}, None, r"No such file.* \(/nowhere/ca\)"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority-data": "YQ=="},
            None,
            "exclude each other",
        ),
        ({}, {"as": "jane"}, "its user has as, which is not supported"),
        ({}, {"exec": {"apiVersion": "v9", "command": "x"}}, 'plugin has the apiVersion "v9"'),
    ],
)
def test_an_entry_that_can_not_be_used_says_why(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        loaded(tmp_path, config(cluster, user))


def test_a_broken_certificate_beside_the_clusters_ca_is_skipped(tmp_path: Path) -> None:
    """As in kubectl."""
    good = create_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    text = base64.b64encode(broken + good + ODD["a subject that is no UTF-8"]).decode()
    access = loaded(tmp_path, config({"certificate-authority-data": text}))
    assert create_tls_context(access).cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"certificate-authority-data": "YQ=="}, None, "its certificate-authority holds no"),
        ({"certificate-authority": "/dev/null"}, None, "its certificate-authority holds no"),
        (
            {},
            {"client-certificate-data": "YQ==", "client-key-data": "YQ=="},
            "the client certificate and key are not a certificate and its unencrypted key",
        ),
        ({"proxy-url": "socks5://p:1080"}, None, "proxy-url is not an http:// or https:// URL"),
        ({}, {"token": "one two"}, "the kubeconfig's token holds more than one token"),
    ],
)
def test_what_can_not_be_shown_or_trusted_is_an_error_before_anything_is_asked(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, message: str
) -> None:
    access = loaded(tmp_path, config(cluster, user))
    with pytest.raises(ClusterError, match=f"credentials for https://a can't be used: .*{message}"):
        ClusterClient(access)


def test_the_file_that_is_passed_counts_before_the_environment(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        path.write_text(json.dumps(config({"server": f"http://{path.name}"})))
    access = load_config(one, environment={"KUBECONFIG": str(two)})
    assert access is not None
    assert access.server == "http://one"


def test_a_pod_has_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    host = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = load_config(environment=host, service_account=str(tmp_path))
    assert access is not None
    assert access.namespace == ""
    (tmp_path / "namespace").write_text("team-a")
    access = load_config(environment=host, service_account=str(tmp_path))
    assert access is not None
    assert access.namespace == "team-a"
    assert (access.server, access.authority) == ("https://[fd00::1]:443", b"c")
    assert access.token_file == tmp_path / "token"
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(ClusterError, match=r"No such file or directory \(.*ca.crt\)"):
        load_config(environment={"KUBERNETES_SERVICE_HOST": "h"}, service_account=str(tmp_path))
