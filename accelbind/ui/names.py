"""What the page says of names: what each becomes, and what a pod's request becomes."""

from typing import Final

import yaml

from accelbind.cluster import Json
from accelbind.explain.asking import Asked
from accelbind.explain.show import as_yaml, lines
from accelbind.ui.live import Live
from services.pods.manifests import find_pods
from services.process.errors import InvalidManifest

_EXAMPLE: Final = "accelbind.dev/gpu: 1"


async def explained(live: Live, namespace: str, text: str) -> Json:
    """What becomes of a container with these limits, as YAML: a line per fact, and the pod.

    Raises:
        InvalidManifest: The text is no mapping of names to numbers.
        ClusterError: The API server does not say.
    """
    limits = yaml.safe_load(text)
    if not isinstance(limits, dict) or not all(map(_is_limit, limits, limits.values())):
        raise InvalidManifest(f"write a name and a number per line, such as {_EXAMPLE}")
    container: Json = {"name": "main", "image": "image", "resources": {"limits": limits}}
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"containers": [container]},
    }
    asked = Asked([*find_pods(manifest)], [namespace], (), live.policy)
    (answer,) = await asked.on_cluster(live.client)
    said = [each if isinstance(each, str) else each[1] for each in lines(answer)]
    return {
        "refused": answer.is_refused,
        "lines": [*said, *answer.hints],
        "pod": "\n".join(as_yaml(answer.after)) if answer.after else "",
    }


def _is_limit(name: object, number: object) -> bool:
    # Lists that repeat lists by aliases would be billions of values once they are written.
    return isinstance(name, str) and isinstance(number, str | int | float | None)
