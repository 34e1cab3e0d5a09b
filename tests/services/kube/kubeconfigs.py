"""Kubeconfig files with one cluster and one user, and clients of them."""

import json
from pathlib import Path
from typing import Any

from services.kube.client import ClusterClient
from services.kube.connection import connector


def config_of(cluster: dict[str, Any], user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    }


def write_config(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config_of(cluster, user)))
    return path


def client_of(folder: Path, server: str, user: dict[str, Any] | None = None) -> ClusterClient:
    return connector(write_config(folder, {"server": server}, user))()
