"""The kubeconfig of clients: server, CA and token."""

import json
from base64 import b64encode
from pathlib import Path

from services.process.files import replace_file
from simulator.apiserver.wire import Json

_NAME = "accelbind-simulator"


def kubeconfig(server: str, authority: bytes, token: str) -> Json:
    """The configuration as an object."""
    user = {"token": token}
    cluster = {
        "server": server,
        "certificate-authority-data": b64encode(authority).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": user}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }


def write_kubeconfig(path: Path, config: Json) -> None:
    """Writes a kubeconfig (JSON, which is YAML), mode 0600."""
    replace_file(path, (json.dumps(config, indent=2) + "\n").encode(), mode=0o600)
