"""Whether anything says how to reach an API server; asked before a client's memory is paid for."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def named_kubeconfig(kubeconfig: Path | None, environment: Mapping[str, str]) -> str:
    """The kubeconfig file that a flag or `KUBECONFIG` names; empty if neither does."""
    return str(kubeconfig or environment.get("KUBECONFIG") or "")


def in_a_pod(environment: Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> bool:
    """Whether this is a pod with a service account's token."""
    return "KUBERNETES_SERVICE_HOST" in environment and Path(service_account, "token").exists()


def may_reach(
    kubeconfig: Path | None = None, *, environment: Mapping[str, str] = os.environ
) -> bool:
    """Whether `services.kube.client.load_config` would give a configuration, or an error."""
    return bool(named_kubeconfig(kubeconfig, environment)) or in_a_pod(environment)
