"""The settings of `accelbind certs run`."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from certs.authority import parse_names
from certs.certificates import RENEWAL_SHARE
from certs.policy import CertificatePolicy
from certs.store import CertificateLocations
from services.kube.config import SERVICE_ACCOUNT
from services.process.errors import InvalidSettings
from services.process.settings import (
    KUBECONFIG,
    PROCESS,
    TIME,
    CommaSeparated,
    Days,
    Duration,
    Flag,
    Port,
    ProcessSettings,
)

NAMESPACE: Final = "accelbind-system"
"""The namespace in the manifests."""

CLUSTER: Final = "Cluster"
CERTIFICATES: Final = "Certificates"

_LONGEST: Final = timedelta(days=36500)


def own_namespace(service_account: str = SERVICE_ACCOUNT) -> str:
    """The namespace of this pod, or that of the manifests."""
    try:
        return Path(service_account, "namespace").read_text(encoding="utf-8").strip()
    except OSError:  # outside of a pod
        return NAMESPACE


class CertsSettings(ProcessSettings):
    """The settings of `accelbind certs run`."""

    kubeconfig: Annotated[Path | None, Flag("FILE", CLUSTER, KUBECONFIG)] = None
    """How to reach the API server."""
    namespace: Annotated[
        str, Flag("NAME", CLUSTER, "the pod's own, or accelbind-system", short="-n")
    ] = Field(default_factory=own_namespace)
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
    lifetime: Annotated[
        Days, Field(ge=timedelta(seconds=2), le=_LONGEST), Flag(TIME, CERTIFICATES)
    ] = timedelta(days=90)
    """How long a serving certificate is valid; a bare number counts days."""
    ca_lifetime: Annotated[
        Days, Field(ge=timedelta(seconds=2), le=_LONGEST), Flag(TIME, CERTIFICATES)
    ] = timedelta(days=3650)
    """How long a CA is valid; a bare number counts days."""
    settle: Annotated[
        Duration, Field(ge=timedelta(0), le=timedelta(days=1)), Flag(TIME, CERTIFICATES)
    ] = timedelta(minutes=1)
    """How long a new CA is in the bundle before it signs."""
    overlap: Annotated[Duration, Field(ge=timedelta(0), le=_LONGEST), Flag(TIME, CERTIFICATES)] = (
        timedelta(days=1)
    )
    """Age of the serving certificate at which the CAs before its own leave the bundle; less than
    two thirds of --lifetime."""
    interval: Annotated[
        Duration,
        Field(ge=timedelta(milliseconds=100), le=timedelta(hours=1)),
        Flag(TIME, CERTIFICATES),
    ] = timedelta(seconds=10)
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
        if self.ca_lifetime < self.lifetime:
            raise ValueError(
                "--ca-lifetime is shorter than --lifetime: no certificate outlives its CA"
            )
        if self.interval > self.lifetime / 6:
            raise ValueError(
                "--interval is more than a sixth of --lifetime: certificates could expire between"
                " two rounds"
            )
        if self.overlap >= self.lifetime * RENEWAL_SHARE:
            raise ValueError(
                "--overlap must be less than two thirds of --lifetime: an old CA leaves once the"
                " serving certificate is that old, and it is renewed at two thirds"
            )
        try:
            _ = self.policy
        except InvalidSettings as error:
            raise ValueError(f"--name, --service, --namespace: {error}") from error
        return self

    @property
    def locations(self) -> CertificateLocations:
        """Where the certificates are."""
        return CertificateLocations(
            self.namespace,
            self.ca_secret,
            self.tls_secret,
            self.service,
            self.webhook_config,
        )

    @property
    def policy(self) -> CertificatePolicy:
        """What the certificates are like."""
        at = f"{self.service}.{self.namespace}"
        return CertificatePolicy(
            parse_names((f"{at}.svc", at, self.service, *self.name)),
            lifetime=self.lifetime,
            authority_lifetime=self.ca_lifetime,
            overlap=self.overlap,
            settle=self.settle,
        )
