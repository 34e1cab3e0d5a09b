"""The settings of `accelbind webhook`."""

import re
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from services.admission.mutate import MAX_POD_UNITS, Policy
from services.names import ACCELERATOR_DOMAIN, DOMAIN
from services.process.listening import ALL_ADDRESSES
from services.process.settings import (
    SERVICE_ACCOUNT,
    TIME,
    ApiServer,
    CommaSeparated,
    Flag,
    Port,
    ProcessSettings,
    Seconds,
    Settings,
)

MAX_BODY: Final = 3 * 1024 * 1024
"""An API server takes no object of more than 3 MiB (k8s.io/apiserver, `MaxRequestBodyBytes`)."""

TLS: Final = "TLS"
MAPPINGS: Final = "Mappings"
REVIEWS: Final = "Reviews"

_NAMESPACE = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"
_UNITS = {"": 1, "Ki": 1024, "Mi": 1024**2}
_SIZE = re.compile(r"(\d{1,12})\s*(Ki|Mi|)B?")


def _bytes(value: object) -> object:
    """Parse a number of bytes, also as `512Ki` or `3Mi`."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(match[1]) * _UNITS[match[2]]
    return value


def _domains(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("at least one domain is needed")
    return value


class ReviewSettings(Settings):
    """How pods are reviewed: by the webhook, and by commands that show what it would do."""

    max_units: Annotated[int, Field(ge=1, le=MAX_POD_UNITS), Flag("N", REVIEWS)] = 64
    """Number of devices that a container may request."""
    domain: Annotated[CommaSeparated, AfterValidator(_domains), Flag("DOMAIN", REVIEWS)] = (DOMAIN,)
    """Domain of FPGAs whose resources are reviewed. A name resolves in the domain it was requested
    in; accelbind's plugin offers fpga.intel.com and b-com.com/accelerator only."""
    accelerator_domain: Annotated[
        CommaSeparated, AfterValidator(_domains), Flag("DOMAIN", REVIEWS)
    ] = (ACCELERATOR_DOMAIN,)
    """Domain of the names of Accelerators."""
    shared_namespace: Annotated[str, Field(pattern=_NAMESPACE), Flag("NAME", REVIEWS, "none")] = ""
    """Namespace whose Accelerators serve names that the pod's namespace doesn't map."""
    guard: Annotated[CommaSeparated, Flag("RESOURCE", REVIEWS, "none")] = ()
    """Resource that pods of guarded namespaces get by names of Accelerators only, such as
    nvidia.com/*."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        self.policy()
        return self

    def policy(self) -> Policy:
        """Return what reviews are answered by; raises as `Policy`."""
        return Policy(
            self.domain,
            self.max_units,
            self.accelerator_domain,
            self.shared_namespace,
            self.guard,
        )


class WebhookSettings(ReviewSettings, ProcessSettings):
    """The settings of `accelbind webhook`."""

    tls_cert: Annotated[Path, Flag("FILE", TLS)]
    """Certificate and chain, PEM; read again when it changes. Required."""
    tls_key: Annotated[Path, Flag("FILE", TLS)]
    """Its private key, PEM, unencrypted. Required."""
    client_ca: Annotated[Path | None, Flag("FILE", TLS)] = None
    """Accept only clients with a certificate of these CAs, PEM; read again when it changes. Use a
    CA of its own, and the metrics port for probes."""
    host: Annotated[str, Flag("ADDRESS", TLS)] = ALL_ADDRESSES
    """Address for reviews, over TLS; `::` is all addresses, IPv6 and IPv4."""
    port: Annotated[Port, Flag("PORT", TLS)] = 8443
    """Port for reviews, over TLS; 0 takes any free one."""
    mappings: Annotated[Path | None, Flag("DIR", MAPPINGS)] = None
    """Folder of mappings as YAML; read again when it changes."""
    api_server: Annotated[ApiServer, Flag("ADDRESS", MAPPINGS, SERVICE_ACCOUNT)] = ""
    """unix:PATH or http://HOST:PORT of the API server, through kubectl proxy. It has the mappings
    unless --mappings is given."""
    max_staleness: Annotated[
        Annotated[Seconds, Field(ge=5, le=1_000_000)] | None, Flag(TIME, MAPPINGS, "none")
    ] = None
    """Report not ready while mappings are older than this. Without it, the last mappings
    stay in use."""
    max_body: Annotated[
        int,
        BeforeValidator(_bytes),
        Field(ge=1024, le=16 * 1024 * 1024),
        Flag("BYTES", REVIEWS, "3Mi"),
    ] = MAX_BODY
    """Size of the largest review, such as 3145728 or 3Mi."""
    drain_seconds: Annotated[Seconds, Field(ge=0, le=300), Flag(TIME, REVIEWS)] = 1.0
    """How long new connections are accepted after SIGTERM."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.mappings is not None and self.api_server:
            raise ValueError(
                "--mappings and --api-server exclude each other: mappings come from a folder, or"
                " from the API server"
            )
        return self
