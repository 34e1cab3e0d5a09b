"""Kubeconfig files with one cluster and one user, in namespace n."""

import json
from pathlib import Path
from typing import Any


def write_config(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    }
    path.write_text(json.dumps(config))
    return path
