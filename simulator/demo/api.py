"""A small Kubernetes client for the demo: JSON over TLS with a bearer token."""

import ssl
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from services.kube.config import load_config
from services.process.errors import ClusterError

Json: TypeAlias = dict[str, Any]

TIMEOUT_SECONDS = 10.0


class Refused(ClusterError):
    """The API server refused a request; `status` is the Status that it returned."""

    def __init__(self, status: Json) -> None:
        super().__init__(str(status.get("message", "the API server gave no reason")))
        self.status = status


class Api:
    """The API server of a kubeconfig that has a CA and a token."""

    def __init__(self, kubeconfig: Path) -> None:
        access = load_config(kubeconfig)
        if access is None or access.authority is None:
            raise ClusterError(f"kubeconfig {kubeconfig} names no server with a CA")
        token = access.token_file.read_text().strip() if access.token_file else access.token
        self._server = access.server.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cadata=access.authority.decode())

    def get(self, path: str) -> Json:
        """An object or a list."""
        return self._request("GET", path)

    def post(self, path: str, obj: Json) -> Json:
        """Create an object; returns what the server stored."""
        return self._request("POST", path, obj)

    def delete(self, path: str) -> Json:
        """Delete an object."""
        return self._request("DELETE", path)

    def _request(self, method: str, path: str, obj: Json | None = None) -> Json:
        try:
            response = httpx2.request(
                method,
                self._server + path,
                json=obj,
                headers=self._headers,
                verify=self._tls,
                timeout=TIMEOUT_SECONDS,
                trust_env=False,
            )
            body = response.json()
        except (httpx2.HTTPError, OSError, ValueError) as error:
            raise ClusterError(f"{method} {path}: {error}") from error
        if response.is_error or not isinstance(body, dict):
            raise Refused(body if isinstance(body, dict) else {"message": str(body)[:500]})
        return body
