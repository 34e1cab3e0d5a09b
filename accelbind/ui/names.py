"""What the page says of names: what each becomes, and what a pod's request becomes."""

from typing import Any, Final, TypeAlias

import yaml

from accelbind.survey import survey
from accelbind.ui.live import Live
from services.admission.mutate import Patched, Refused
from services.admission.preview import explain_pod, mutated_manifest
from services.mappings.model import Mapping
from services.pods.manifests import find_pods
from services.process.errors import InvalidManifest

Json: TypeAlias = dict[str, Any]

_UNCHANGED: Final = "admitted unchanged"


async def explained(live: Live, namespace: str, text: str) -> Json:
    """What the webhook would do to a container with these limits, as YAML.

    Raises:
        InvalidManifest: The text is no mapping of names to numbers.
        ClusterError: The mappings can't be read.
    """
    limits = yaml.safe_load(text)
    if not isinstance(limits, dict):
        raise InvalidManifest("write a name and a number per line, such as accelbind.dev/gpu: 1")
    container: Json = {"name": "main", "image": "image", "resources": {"limits": limits}}
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"containers": [container]},
    }
    index = (await survey(live.client, live.policy, namespace=namespace)).index
    (found,) = find_pods(manifest)
    result = explain_pod(found, index, live.policy, namespace=namespace).result
    if isinstance(result, Refused):
        return {"outcome": "refused", "lines": [each.text for each in result.refusals], "pod": ""}
    if not isinstance(result, Patched):
        return {"outcome": "unchanged", "lines": [_UNCHANGED], "pod": ""}
    pod = yaml.safe_dump(mutated_manifest(manifest, result), sort_keys=False, allow_unicode=True)
    return {"outcome": "rewritten", "lines": list(result.warnings), "pod": pod}


async def names_of(live: Live, namespace: str) -> Json:
    """The names that a namespace has, what each becomes, and how many devices there are for it.

    Raises:
        ClusterError: The mappings can't be read.
    """
    found = await survey(live.client, live.policy, namespace=namespace)
    mappings = [
        mapping
        for table in (*found.index.namespace(namespace).tables, live.policy.shared(found.index))
        for mapping in table.by_name.values()
    ]
    return {"names": [_row(each, found.advertised) for each in mappings]}


def _row(mapping: Mapping, advertised: dict[str, int] | None) -> Json:
    resource = mapping.resolution.resource
    offered = None if advertised is None else advertised.get(resource.partition("/")[2], 0)
    return {
        "name": mapping.name,
        "becomes": f"{mapping.resolution.count} of {resource}",
        "offered": "unknown" if offered is None else offered,
        "free": "unknown",
        "defined": mapping.label,
    }
