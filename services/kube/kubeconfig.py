"""What says how to reach an API server: kubeconfig files, or a pod's service account.

Read as kubectl reads them (k8s.io/client-go/tools/clientcmd): of several files that `KUBECONFIG`
names those that exist count together, and what the first one says of a name counts; paths in a file
are those seen from its folder. Only what the current context names has to be right. What there is
no doing as a file says is an error, never left out: a user who is to act as another one, or a
server that is to be reached some other way, would become something else than was meant.
"""

import base64
import binascii
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from services.kube.access import Access, Plugin
from services.process.errors import ClusterError
from services.process.text import plain

PLUGIN_VERSIONS: Final = tuple(
    f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")
)


def from_files(named: str, *, several: bool) -> Access:
    """What kubeconfig files say.

    Args:
        named: the file; or as in `KUBECONFIG`.
        several: whether it is as in `KUBECONFIG`: files with colons in between, of which some may
            be missing.

    Raises:
        ClusterError: They can't be read or used.
    """
    names = [name for name in named.split(os.pathsep) if name] if several else [named]

    def read() -> Access:
        paths = [Path(name).expanduser() for name in names]
        there = [path for path in paths if path.exists()]
        if not there:
            raise ClusterError("not found")
        return _current(_Merged([_read(path) for path in there]))

    return _explained(f"kubeconfig {named}", read)


def from_service_account(folder: str, environment: Mapping[str, str]) -> Access:
    """What a pod has (kubernetes.io/docs/tasks/run-application/access-api-from-pod).

    Args:
        folder: where its service account's files are.
        environment: has the API server's address.

    Raises:
        ClusterError: Something of it is missing.
    """

    def read() -> Access:
        host = environment["KUBERNETES_SERVICE_HOST"]
        port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        authority = Path(folder, "ca.crt").read_bytes()
        return Access(server, authority, token_file=Path(folder, "token"))

    return _explained(f"service account {folder}", read)


def _explained(what: str, read: Callable[[], Access]) -> Access:
    try:
        return read()
    except ClusterError as error:
        raise ClusterError(f"{what} can't be used: {error}") from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ClusterError(f"{what} can't be read: {error.strerror or error}{where}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ClusterError(f"{what} is no kubeconfig: {plain(str(error), 200)}") from error


class _Config(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[dict[str, Any]] | None = None
    contexts: list[dict[str, Any]] | None = None
    users: list[dict[str, Any]] | None = None


class _Context(msgspec.Struct):
    cluster: str | None = None
    user: str | None = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[dict[str, Any]] | None = None


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    api_version: str
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None


class _User(
    msgspec.Struct,
    rename={
        **{
            name: name.replace("_", "-")
            for name in (
                "client_certificate",
                "client_certificate_data",
                "client_key",
                "client_key_data",
                "auth_provider",
                "as_uid",
                "as_groups",
                "as_user_extra",
            )
        },
        "token_file": "tokenFile",
        "as_": "as",
    },
):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = None
    username: str | None = None
    password: str | None = None
    auth_provider: dict[str, Any] | None = None
    exec: _Exec | None = None
    as_: str | None = None
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


S = TypeVar("S", bound=msgspec.Struct)


def _read(path: Path) -> tuple[_Config, Path]:
    """A file, and the folder that its paths are seen from."""
    import yaml  # noqa: PLC0415 - a pod on every node has no kubeconfig, and would pay 1 MiB

    try:
        read = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return msgspec.convert(read, _Config), path.absolute().parent


class _Merged:
    """Several files as one."""

    def __init__(self, files: Sequence[tuple[_Config, Path]]) -> None:
        self.context = next((each.current_context for each, _ in files if each.current_context), "")
        self._entries: dict[tuple[str, str], tuple[object, Path]] = {}
        for config, folder in files:
            sections = {
                "cluster": config.clusters,
                "context": config.contexts,
                "user": config.users,
            }
            for section, entries in sections.items():
                for entry in entries or ():
                    key = section, str(entry.get("name"))
                    self._entries.setdefault(key, (entry.get(section), folder))

    def get(self, section: str, name: str, kind: type[S]) -> tuple[S, Path]:
        """An entry, and the folder that its paths are seen from."""
        try:
            found, folder = self._entries[section, name]
        except KeyError:
            raise ClusterError(f'it has no {section} "{plain(name, 80)}"') from None
        return msgspec.convert(found or {}, kind), folder


def _current(merged: _Merged) -> Access:
    if not merged.context:
        raise ClusterError("it has no current-context: set one (kubectl config use-context)")
    context, _ = merged.get("context", merged.context, _Context)
    cluster, at = merged.get("cluster", context.cluster or "", _Cluster)
    if not context.user:
        raise ClusterError("it names no user to be: set its current-context to one that does")
    user, home = merged.get("user", context.user, _User)
    if user.auth_provider:
        raise ClusterError("auth-provider is gone since Kubernetes 1.26: have a credential plugin")
    authority = _content(cluster.certificate_authority_data, cluster.certificate_authority, at)
    insecure = bool(cluster.insecure_skip_tls_verify)
    if insecure and authority is not None:
        raise ClusterError(
            "insecure-skip-tls-verify and a certificate-authority exclude each other"
        )
    return Access(
        server=_url(cluster.server or ""),
        authority=authority,
        insecure=insecure,
        server_name=cluster.tls_server_name or "",
        proxy=cluster.proxy_url or "",
        certificate=_content(user.client_certificate_data, user.client_certificate, home) or b"",
        key=_content(user.client_key_data, user.client_key, home) or b"",
        token=user.token or "",
        token_file=home / user.token_file if user.token_file else None,
        plugin=_plugin(user.exec, home, cluster, authority) if user.exec else None,
        login=(user.username, user.password or "") if user.username else None,
        headers=tuple(_acting_as(user)),
    )


def _url(server: str) -> str:
    with contextlib.suppress(ValueError):
        url = urlsplit(server)
        if url.scheme in ("https", "http") and url.hostname and url.port != 0:
            return server
    raise ClusterError(f'the server "{plain(server, 80)}" is no URL of https')


def _content(data: str | None, path: str | None, folder: Path) -> bytes | None:
    """What stands in the file itself counts before what it names; None where neither does."""
    if data:
        try:
            return base64.b64decode(data)
        except binascii.Error as error:
            raise ClusterError(f"some of its data is no base64: {error}") from error
    return (folder / path).read_bytes() if path else None


def _acting_as(user: _User) -> Iterator[tuple[str, str]]:
    """The headers for it (kubernetes.io/docs/reference/access-authn-authz/user-impersonation)."""
    others = user.as_uid or user.as_groups or user.as_user_extra
    if not user.as_:
        if others:
            raise ClusterError("as-uid, as-groups and as-user-extra need an as")
        return
    yield "Impersonate-User", user.as_
    if user.as_uid:
        yield "Impersonate-Uid", user.as_uid
    for group in user.as_groups or ():
        yield "Impersonate-Group", group
    for key, values in (user.as_user_extra or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe='')}", value


def _plugin(told: _Exec, folder: Path, cluster: _Cluster, authority: bytes | None) -> Plugin:
    if told.api_version not in PLUGIN_VERSIONS:
        versions = ", ".join(PLUGIN_VERSIONS)
        raise ClusterError(f'its plugin answers in "{told.api_version}": known are {versions}')
    # A name is looked for in PATH; a path counts from the file's folder.
    command = str(folder / told.command) if "/" in told.command else told.command
    return Plugin(
        told.api_version,
        (command, *(told.args or ())),
        {variable.name: variable.value for variable in told.env or ()},
        told.install_hint or "",
        _told(cluster, authority) if told.provide_cluster_info else None,
    )


def _told(cluster: _Cluster, authority: bytes | None) -> dict[str, object]:
    """A cluster as plugins are told of it (`Cluster` of client.authentication.k8s.io)."""
    extensions = {each.get("name"): each.get("extension") for each in cluster.extensions or ()}
    told = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": cluster.proxy_url,
        "config": extensions.get("client.authentication.k8s.io/exec"),
    }
    return {key: value for key, value in told.items() if value}
