"""What the end-to-end suite is told, by variables of its environment (or of `make e2e`)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.process.errors import InvalidInput

HELP = """\
make e2e KUBECONFIG=FILE …: the suite against a cluster. What it makes there goes with it.

  KUBECONFIG=FILE          the cluster; its user may make namespaces, definitions and webhook
                           configurations, and read nodes
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
  DEVICES=files            regular files for the cards' nodes, where the kubelet is a stand-in
  PATIENCE=SECONDS         how long the cluster may take for one step (default: 180)
  SOAK=1                   also what takes long of the DRA driver, half an hour (SOAK_SECONDS=…:
                           how long pods compete for regions)
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


@dataclass(frozen=True, slots=True)
class Settings:
    """The suite's settings, as `HELP` explains them."""

    kubeconfig: Path
    host_processes: bool
    root: Path | None
    node_name: str
    image: str
    webhook_host: str
    kubelet_restart: str
    kubelet_dir: Path
    pod_logs_dir: Path
    cdi_dir: Path
    character_devices: bool
    patience: float


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that an environment names."""
    kubeconfig = environment.get("KUBECONFIG", "")
    if not kubeconfig:
        raise WrongSetting(NO_CLUSTER)
    if not _is_file(_path(kubeconfig)):
        raise WrongSetting(f"KUBECONFIG={kubeconfig} is no file that can be read: name one")
    host_processes = _yes(environment, "HOST_PROCESSES")
    root = environment.get("ROOT", "")
    if root and not host_processes:
        raise WrongSetting("ROOT is where HOST_PROCESSES=1 lays out its cards: name that too")
    devices = environment.get("DEVICES") or "character"
    if devices not in ("character", "files"):
        raise WrongSetting(f"DEVICES={devices} is neither character nor files")
    return Settings(
        kubeconfig=_path(kubeconfig),
        host_processes=host_processes,
        root=_path(root) if root else None,
        node_name=environment.get("NODE_NAME", ""),
        image=environment.get("IMAGE", ""),
        webhook_host=environment.get("WEBHOOK_HOST", ""),
        kubelet_restart=environment.get("KUBELET_RESTART", ""),
        kubelet_dir=_path(environment.get("KUBELET_DIR") or "/var/lib/kubelet"),
        pod_logs_dir=_path(environment.get("POD_LOGS_DIR") or "/var/log/pods"),
        cdi_dir=_path(environment.get("CDI_DIR") or "/var/run/cdi"),
        character_devices=devices == "character",
        patience=_seconds(environment.get("PATIENCE") or "180"),
    )


def _path(text: str) -> Path:
    """A path as a person writes it."""
    return Path(text).expanduser().absolute()


def _is_file(path: Path) -> bool:
    """Whether it is one; where we may not look, there is none for us."""
    return os.access(path, os.R_OK) and path.is_file()


def _yes(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "")
    if text.lower() in ("", "0", "no", "false"):
        return False
    if text.lower() in ("1", "yes", "true"):
        return True
    raise WrongSetting(f"{name}={text} is neither 1 nor 0")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= 3600:
        raise WrongSetting(f"PATIENCE={text} is no number of seconds from 1 to 3600")
    return seconds
