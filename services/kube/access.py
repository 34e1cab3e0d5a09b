"""How to reach an API server, and who to be there: what kubeconfigs and service accounts say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that gives credentials.

    Attributes:
        api_version: what it is to answer in.
        command: the program, and what it is told.
        environment: variables that it gets beside ours.
        hint: what to do where it isn't installed.
        cluster: what it is told of the cluster; None if it needn't know.
    """

    api_version: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    hint: str = ""
    cluster: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server, and who to be there.

    Attributes:
        server: its URL.
        authority: the CAs that its certificate may be from, PEM; None for the system's.
        insecure: whether its certificate doesn't matter.
        server_name: the name in its certificate; that of the URL if empty.
        proxy: URL of the proxy to it; the environment tells if empty.
        certificate: our certificate, PEM; empty if there is none.
        key: its key, PEM.
        token: who we are.
        token_file: where that stands, and changes.
        plugin: what gives it.
        login: user and password.
        headers: who we act as.
    """

    server: str
    authority: bytes | None = None
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    plugin: Plugin | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = ()
