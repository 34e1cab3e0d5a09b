"""What a kubeconfig says of a user, as lightkube can take it.

lightkube runs credential plugins of `client.authentication.k8s.io/v1beta1`, and looks for a token's
file in the current folder. Kubeconfigs of today name `v1`, whose answer is the same (a plugin is
told which one to give in `KUBERNETES_EXEC_INFO`), and their paths count from the file's folder:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from typing import Final

import msgspec
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import NameValue, UserExec

_GROUP: Final = "client.authentication.k8s.io"
_NOW: Final = f"{_GROUP}/v1"
_THEN: Final = f"{_GROUP}/v1beta1"


def completed(config: SingleConfig) -> SingleConfig:
    """The configuration, with its user's token file and plugin as lightkube can take them."""
    user = config.user
    if user is None:
        return config
    if user.token_file:
        user = msgspec.structs.replace(user, token_file=str(config.abs_file(user.token_file)))
    if user.exec is not None and user.exec.apiVersion == _NOW:
        user = msgspec.structs.replace(user, exec=_told(user.exec))
    return config._replace(user=user)


def _told(plugin: UserExec) -> UserExec:
    """A plugin of v1, which is told that it is one and that there is nobody to ask."""
    info = {"apiVersion": _NOW, "kind": "ExecCredential", "spec": {"interactive": False}}
    told = NameValue("KUBERNETES_EXEC_INFO", msgspec.json.encode(info).decode())
    return msgspec.structs.replace(plugin, apiVersion=_THEN, env=[*(plugin.env or ()), told])
