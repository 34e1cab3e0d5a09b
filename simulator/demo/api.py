"""The little of a Kubernetes client that the demo needs: JSON over TLS with a bearer token."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any, TypeAlias
from urllib import error, request

import yaml

from services.process.errors import ClusterError

Json: TypeAlias = dict[str, Any]

TIMEOUT = 10.0


class Refused(ClusterError):
    """The API server said no; `status` is the Status that it answered with."""

    def __init__(self, status: Json) -> None:
        super().__init__(str(status.get("message", "refused without a word")))
        self.status = status


class Api:
    """Talks to the API server that a kubeconfig names."""

    def __init__(self, kubeconfig: Path) -> None:
        """Reads the kubeconfig's first cluster and user.

        Args:
            kubeconfig: with a server, its CA (file or data) and a token.
        """
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        self._token = user.get("token") or Path(user["tokenFile"]).read_text().strip()
        data = cluster.get("certificate-authority-data")
        self._tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=base64.b64decode(data).decode() if data else None,
        )

    def get(self, path: str) -> Json:
        """An object or a list."""
        return self._ask("GET", path)

    def post(self, path: str, obj: Json) -> Json:
        """Creates an object and gives it as the server keeps it."""
        return self._ask("POST", path, obj)

    def delete(self, path: str) -> Json:
        """Has an object go, and gives what the server says to that."""
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, obj: Json | None = None) -> Json:
        asked = request.Request(  # noqa: S310 - the scheme is the kubeconfig's
            self._server + path,
            method=method,
            data=None if obj is None else json.dumps(obj).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        try:
            with request.urlopen(asked, timeout=TIMEOUT, context=self._tls) as answer:  # noqa: S310 - as above
                body: Json = json.load(answer)
                return body
        except error.HTTPError as refused:
            raise Refused(_status(refused.read())) from refused
        except OSError as problem:
            raise ClusterError(f"{method} {path}: {problem}") from problem


def _status(body: bytes) -> Json:
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    return status if isinstance(status, dict) else {"message": body[:500].decode(errors="replace")}
