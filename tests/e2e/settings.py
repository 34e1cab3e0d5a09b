"""What the end-to-end suite is told, by variables of its environment (or of `make e2e`)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from services.process.errors import InvalidInput

HELP = """\
make e2e KUBECONFIG=FILE …: the suite against a cluster. What it makes there goes with it.

  KUBECONFIG=FILE          the cluster; its user may make namespaces, definitions and webhook
                           configurations, and read nodes; one kubectl proxy serves the whole run
  API_SERVER=ADDRESS       unix:PATH of a kubectl proxy, in place of KUBECONFIG
  HOST_PROCESSES=1         start webhook, certificates and plugin here, on a node of the cluster, as
                           root; without it, test what is deployed from manifests/
  ROOT=DIR                 where the synthetic cards are laid out, not on a file system mounted
                           with nodev (default: a fresh folder, in /var/lib)
  NODE_NAME=NAME           the node under test (default: the one that this machine is, or the only
                           one; what is deployed: one that offers accelerators)
  IMAGE=IMAGE              for all pods, with sh, env and grep (default: busybox:1.37, the samples')
  WEBHOOK_HOST=ADDRESS     where the API server reaches this machine (default: the address from
                           which this machine reaches the API server)
  KUBELET_RESTART=COMMAND  how the node's kubelet is restarted (default: it isn't)
  KUBELET_DIR=DIR          the kubelet's folder (default: /var/lib/kubelet)
  CDI_DIR=DIR              the container runtime's folder of CDI files (default: /var/run/cdi)
  POD_LOGS_DIR=DIR         folders of the pods' logs (default: /var/log/pods)
  PATIENCE=SECONDS         how long the cluster may take for one step (default: 180)
  PYTEST_ARGS=…            more for pytest: -k modes, -x, -v

make e2e SIMULATOR=1: the same against the stand-ins, on this machine alone.
"""

NO_CLUSTER = (
    "no cluster is named: make e2e KUBECONFIG=FILE tests what is deployed there, with"
    " HOST_PROCESSES=1 what it starts here, on a node, itself; make e2e SIMULATOR=1 needs no"
    " cluster. make e2e HELP=1 lists all settings."
)


class WrongSetting(InvalidInput):
    """A setting can't be used."""


SettingPath: TypeAlias = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class Settings(BaseModel):
    """The suite's settings, as `HELP` explains them."""

    model_config = ConfigDict(frozen=True)

    kubeconfig: SettingPath | None = None
    api_server: str = ""
    host_processes: bool = False
    root: SettingPath | None = None
    node_name: str = ""
    image: str = ""
    webhook_host: str = ""
    kubelet_restart: str = ""
    kubelet_dir: SettingPath = Path("/var/lib/kubelet")
    pod_logs_dir: SettingPath = Path("/var/log/pods")
    cdi_dir: SettingPath = Path("/var/run/cdi")
    patience: float = Field(180.0, ge=1, le=3600)


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    variables = {name: environment.get(name.upper()) for name in Settings.model_fields}
    given = {name: value for name, value in variables.items() if value}
    if not {"kubeconfig", "api_server"} & set(given):
        raise WrongSetting(NO_CLUSTER)
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise WrongSetting(f"{name.upper()}={given[name]}: {first['msg']}") from error
