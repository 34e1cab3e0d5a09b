"""The settings of `accelbind certs run`."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from certs.authority import parse_names
from services.kube.access import own_namespace
from services.process.errors import InvalidSettings
from services.process.settings import (
    PROCESS,
    SERVICE_ACCOUNT,
    TIME,
    ApiServer,
    CommaSeparated,
    Flag,
    Port,
    ProcessSettings,
    Seconds,
)

NAMESPACE: Final = "accelbind-system"
"""The namespace in the manifests."""

CLUSTER: Final = "Cluster"
CERTIFICATES: Final = "Certificates"


class CertsSettings(ProcessSettings):
    """The settings of `accelbind certs run`."""

    api_server: Annotated[ApiServer, Flag("ADDRESS", CLUSTER, SERVICE_ACCOUNT)] = ""
    """unix:PATH or http://HOST:PORT of the API server, through kubectl proxy."""
    namespace: Annotated[
        str, Flag("NAME", CLUSTER, "the pod's own, or accelbind-system", short="-n")
    ] = Field(default_factory=lambda: own_namespace() or NAMESPACE)
    """Namespace of the Secrets and the Service."""
    service: Annotated[str, Flag("NAME", CLUSTER)] = "accelbind-webhook"
    """The webhook's Service."""
    ca_secret: Annotated[str, Flag("NAME", CLUSTER)] = "accelbind-ca"  # noqa: S105 - a name
    """Secret of the CA and its key."""
    tls_secret: Annotated[str, Flag("NAME", CLUSTER)] = "accelbind-webhook-tls"  # noqa: S105 - a name
    """Secret that the webhook mounts."""
    webhook_config: Annotated[CommaSeparated, Field(min_length=1), Flag("NAME", CLUSTER)] = (
        "accelbind",
    )
    """Webhook configurations, mutating and validating, that get the CA bundle."""
    name: Annotated[CommaSeparated, Flag("NAME", CERTIFICATES)] = ()
    """Further DNS name or IP address in the serving certificate."""
    settle: Annotated[Seconds, Field(ge=0, le=86400), Flag(TIME, CERTIFICATES)] = 60.0
    """How long a new CA is in the bundle before it signs."""
    interval: Annotated[Seconds, Field(ge=0.1, le=3600), Flag(TIME, CERTIFICATES)] = 10.0
    """Time between two rounds."""
    metrics_port: Annotated[Port, Flag("PORT", PROCESS)] = 9103
    """Port for metrics and probes; 0 takes any free one."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.ca_secret == self.tls_secret:
            raise ValueError(
                "--ca-secret and --tls-secret must differ: the webhook mounts the second, and must"
                " not see the CA's key"
            )
        try:
            _ = self.names
        except InvalidSettings as error:
            raise ValueError(f"--name, --service, --namespace: {error}") from error
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the serving certificate."""
        at = f"{self.service}.{self.namespace}"
        return parse_names((f"{at}.svc", at, self.service, *self.name))
