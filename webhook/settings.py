"""The settings of `accelbind webhook`."""

import re
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from services.names import DOMAIN
from services.process.listening import ALL_ADDRESSES
from services.process.settings import CommaSeparated, ProcessSettings

MAX_BODY: Final = 3 * 1024 * 1024
"""An API server takes no object of more than 3 MiB (k8s.io/apiserver, `MaxRequestBodyBytes`)."""

_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESERVED = ("kubernetes.io", "k8s.io")
_UNITS = {"": 1, "Ki": 1024, "Mi": 1024**2}
_SIZE = re.compile(r"(\d{1,12})\s*(Ki|Mi|)B?")


def _bytes(value: object) -> object:
    """A number of bytes, also as `512Ki` or `3Mi`."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(match[1]) * _UNITS[match[2]]
    return value


def _domains(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("at least one domain is needed")
    for domain in value:
        if not _DOMAIN.fullmatch(domain) or len(domain) > 253:
            raise ValueError(f"{domain!r:.80} is no DNS name")
        if domain in _RESERVED or domain.endswith(tuple(f".{name}" for name in _RESERVED)):
            raise ValueError(f"resources of {domain} belong to Kubernetes itself")
    return tuple(dict.fromkeys(value))


class WebhookSettings(ProcessSettings):
    """What `accelbind webhook` can be told; `ProcessSettings` has the rest."""

    host: str = ALL_ADDRESSES
    port: Annotated[int, Field(ge=0, le=65535)] = 8443
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    mappings: Path | None = None
    kubeconfig: Path | None = None
    max_staleness: Annotated[float, Field(ge=5, le=1_000_000)] | None = None
    max_units: Annotated[int, Field(ge=1, le=1024)] = 64
    domain: Annotated[CommaSeparated, AfterValidator(_domains)] = (DOMAIN,)
    max_body: Annotated[int, BeforeValidator(_bytes), Field(ge=1024, le=64 * 1024 * 1024)] = (
        MAX_BODY
    )
    drain_seconds: Annotated[float, Field(ge=0, le=300)] = 1.0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.tls_cert is None or self.tls_key is None:
            missing = "--tls-cert" if self.tls_cert is None else "--tls-key"
            raise ValueError(
                f"{missing} is required: the API server speaks TLS only; `accelbind certs issue"
                " --dir DIR --name NAME` makes tls.crt and tls.key"
            )
        if self.mappings is not None and self.kubeconfig is not None:
            raise ValueError(
                "--mappings and --kubeconfig exclude each other: mappings come from a folder, or"
                " from the API server"
            )
        return self
