"""The settings of `accelbind certs run`."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from certs.authority import name_text, parse_names
from certs.policy import RENEWAL_SHARE, CertificatePolicy
from certs.store import CertificateLocations
from services.kube.reach import SERVICE_ACCOUNT
from services.process.errors import InvalidSettings
from services.process.listening import ALL_ADDRESSES
from services.process.settings import CommaSeparated, ProcessSettings

NAMESPACE: Final = "accelbind-system"
"""The namespace in the manifests; the default outside of a pod."""

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|[smhd]?)")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LONGEST: Final = timedelta(days=36500)


def duration(value: object) -> object:
    """A time such as `90d`, `12h`, `30m`, `45s` or `200ms`; a bare number is seconds."""
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return timedelta(seconds=min(int(match[1]) * _SECONDS[match[2] or "s"], 10**10))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=min(float(value), 10**10))
    if isinstance(value, timedelta):
        return value
    raise ValueError("a time is a number with s, m, h or d behind it, such as 90d")


def duration_text(value: timedelta) -> str:
    """A time as `duration` reads it."""
    milliseconds = round(value.total_seconds() * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    seconds = milliseconds // 1000
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds // int(_SECONDS[unit])}{unit}"
    return f"{seconds}s"


def _label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError(f"{value!r:.80} is not the name of a namespace or Service")
    return value


def _object_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"{value!r:.80} is not the name of an object")
    return value


def _object_names(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("at least one name is needed")
    return tuple(dict.fromkeys(map(_object_name, value)))


def own_namespace(service_account: str = SERVICE_ACCOUNT) -> str:
    """The namespace of this pod, or that of the manifests."""
    try:
        text = Path(service_account, "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return NAMESPACE
    return text if _LABEL.fullmatch(text) else NAMESPACE


Duration = Annotated[
    timedelta, BeforeValidator(duration), PlainSerializer(duration_text, when_used="json")
]
Label = Annotated[str, AfterValidator(_label)]
ObjectName = Annotated[str, AfterValidator(_object_name)]


class CertsSettings(ProcessSettings):
    """The settings of `accelbind certs run`, beside those of every process."""

    host: str = ALL_ADDRESSES
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9103
    kubeconfig: Path | None = None
    namespace: Label = Field(default_factory=own_namespace)
    service: Label = "accelbind-webhook"
    name: CommaSeparated = ()
    ca_secret: ObjectName = "accelbind-ca"  # noqa: S105 - names, no passwords
    tls_secret: ObjectName = "accelbind-webhook-tls"  # noqa: S105 - the same
    webhook_config: Annotated[CommaSeparated, AfterValidator(_object_names)] = ("accelbind",)
    lifetime: Annotated[Duration, Field(ge=timedelta(seconds=2), le=_LONGEST)] = timedelta(days=90)
    ca_lifetime: Annotated[Duration, Field(ge=timedelta(seconds=2), le=_LONGEST)] = timedelta(
        days=3650
    )
    overlap: Annotated[Duration, Field(ge=timedelta(0), le=_LONGEST)] = timedelta(days=1)
    settle: Annotated[Duration, Field(ge=timedelta(0), le=timedelta(days=1))] = timedelta(minutes=1)
    interval: Annotated[Duration, Field(ge=timedelta(milliseconds=100), le=timedelta(hours=1))] = (
        timedelta(seconds=10)
    )

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
            raise ValueError(f"--name: {error}") from error
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
            frozenset(map(name_text, self.policy.names)),
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
