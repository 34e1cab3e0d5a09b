"""How to reach an API server, and as whom: kubeconfig files, or a pod's service account.

Kubeconfig files are read as kubectl reads them (k8s.io/client-go/tools/clientcmd).
"""

import base64
import binascii
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from services.process.errors import ClusterError
from services.process.text import plain

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

EXEC_VERSIONS: Final = tuple(
    f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1")
)
NO_KUBECONFIG: Final = "no kubeconfig was found: set --kubeconfig or $KUBECONFIG"

# Settings of a user that are an error: without them, requests would come from another user.
_UNSUPPORTED: Final = ("auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra")


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class ExecPlugin(msgspec.Struct, rename="camel"):
    """A program that prints credentials."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server, and as whom."""

    server: str
    namespace: str = ""
    """Of the context or of the pod: where kubectl works unless a namespace is named."""
    authority: bytes | None = None
    """The CAs of its certificate, PEM; None for those of the system."""
    insecure: bool = False
    """Whether its certificate is not verified."""
    server_name: str = ""
    """The name in its certificate; empty for the one in the URL."""
    proxy: str = ""
    """URL of the proxy; if empty, the environment decides."""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None


def load_config(
    kubeconfig: Path | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: str = SERVICE_ACCOUNT,
) -> Access | None:
    """How to reach it: from a file, from those that `KUBECONFIG` names, or as the pod's account.

    The first of these that there is counts; None without any.

    Raises:
        ClusterError: It can't be used.
    """
    if kubeconfig:
        return _explained(f"kubeconfig {kubeconfig}", lambda: _from_files([str(kubeconfig)]))
    if named := environment.get("KUBECONFIG"):
        files = [name for name in named.split(os.pathsep) if name]
        return _explained(f"kubeconfig {named}", lambda: _from_files(files))
    if _is_pod(environment, service_account):
        return _explained(
            f"service account {service_account}",
            lambda: _from_service_account(service_account, environment),
        )
    return None


def may_reach(kubeconfig: Path | None = None) -> bool:
    """Whether an API server is configured, rightly or not."""
    return bool(kubeconfig or os.environ.get("KUBECONFIG")) or _is_pod(os.environ, SERVICE_ACCOUNT)


def _is_pod(environment: Mapping[str, str], service_account: str) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment and Path(service_account, "token").exists()


def _explained(what: str, read: Callable[[], Access]) -> Access:
    try:
        return read()
    except ClusterError as error:
        raise ClusterError(f"{what} can't be used: {error}") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ClusterError(f"{what} can't be read: {error.strerror or error}{where}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = plain(_problem(error), 200)
        raise ClusterError(f"{what} is not a kubeconfig: {reason}") from error


def _problem(error: Exception) -> str:
    # PyYAML's own message has several lines, with a part of the file: it may be a token.
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _from_service_account(folder: str, environment: Mapping[str, str]) -> Access:
    """Read a service account (kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = Path(folder, "namespace")
    return Access(
        server,
        namespace=namespace.read_text() if namespace.exists() else "",
        authority=Path(folder, "ca.crt").read_bytes(),
        token_file=Path(folder, "token"),
    )


class _Config(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[dict[str, Any]] | None = None
    contexts: list[dict[str, Any]] | None = None
    users: list[dict[str, Any]] | None = None


class _Context(msgspec.Struct):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    exec: ExecPlugin | None = None


class _Merged:
    """The entries of several files, each with the folder that its paths are relative to."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.context = ""
        self._entries: dict[tuple[str, str], tuple[dict[str, Any], Path]] = {}
        for path in paths:
            config = msgspec.convert(yaml.safe_load(path.read_text()), _Config)
            self.context = self.context or config.current_context or ""
            self._add("cluster", config.clusters, path)
            self._add("context", config.contexts, path)
            self._add("user", config.users, path)

    def _add(self, section: str, entries: list[dict[str, Any]] | None, path: Path) -> None:
        for entry in entries or ():
            value = entry.get(section) or {}, path.absolute().parent
            # The first file that has an entry decides, as in kubectl.
            self._entries.setdefault((section, str(entry.get("name"))), value)

    def get(self, section: str, name: str) -> tuple[dict[str, Any], Path]:
        try:
            return self._entries[section, name]
        except KeyError:
            raise ClusterError(f'it has no {section} "{plain(name, 80)}"') from None


def _from_files(files: Sequence[str]) -> Access:
    # As kubectl: of several files, those that don't exist don't count.
    paths = [path for path in (Path(file).expanduser() for file in files) if path.exists()]
    if not paths:
        raise ClusterError("not found")
    merged = _Merged(paths)
    # Only the entries that the current context names are checked: others are for other clusters.
    if not merged.context:
        raise ClusterError("it has no current-context: set one (kubectl config use-context)")
    context = msgspec.convert(merged.get("context", merged.context)[0], _Context)
    section, cluster_folder = merged.get("cluster", context.cluster or "")
    cluster = msgspec.convert(section, _Cluster)
    if not context.user:
        raise ClusterError("its current-context names no user: set one that does")
    entry, user_folder = merged.get("user", context.user)
    for key in _UNSUPPORTED:
        if entry.get(key):
            raise ClusterError(
                f"its user has {key}, which is not supported: use a token, a client certificate or"
                " a credential plugin (exec)"
            )
    user = msgspec.convert(entry, _User)

    authority = _content(
        cluster.certificate_authority_data, cluster.certificate_authority, cluster_folder
    )
    insecure = bool(cluster.insecure_skip_tls_verify)
    if insecure and authority is not None:
        raise ClusterError(
            "insecure-skip-tls-verify and a certificate-authority exclude each other"
        )
    certificate = _content(user.client_certificate_data, user.client_certificate, user_folder)
    return Access(
        server=_checked_url(cluster.server or ""),
        namespace=context.namespace or "",
        authority=authority,
        insecure=insecure,
        server_name=cluster.tls_server_name or "",
        proxy=cluster.proxy_url or "",
        certificate=certificate or b"",
        key=_content(user.client_key_data, user.client_key, user_folder) or b"",
        token=user.token or "",
        token_file=user_folder / user.token_file if user.token_file else None,
        plugin=_plugin(user.exec, user_folder) if user.exec else None,
    )


def _checked_url(server: str) -> str:
    with contextlib.suppress(ValueError):
        url = urlsplit(server)
        if url.scheme in ("https", "http") and url.hostname and url.port != 0:
            return server
    raise ClusterError(f'the server "{plain(server, 80)}" is not an https URL')


def _content(data: str | None, path: str | None, folder: Path) -> bytes | None:
    """Data of the kubeconfig, or else of the file that it names; None without either."""
    if data:
        try:
            return base64.b64decode(data)
        except binascii.Error as error:
            raise ClusterError(f"some of its data is not base64: {error}") from error
    return (folder / path).read_bytes() if path else None


def _plugin(plugin: ExecPlugin, folder: Path) -> ExecPlugin:
    if plugin.api_version not in EXEC_VERSIONS:
        versions = ", ".join(EXEC_VERSIONS)
        raise ClusterError(
            f'its credential plugin has the apiVersion "{plain(plugin.api_version, 80)}":'
            f" supported are {versions}"
        )
    if "/" not in plugin.command:
        return plugin  # looked up in PATH
    return msgspec.structs.replace(plugin, command=str(folder / plugin.command))
