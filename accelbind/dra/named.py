"""DeviceClasses that give names of Accelerators to pods without the webhook, with their quotas.

A class has an `extendedResourceName`, which every namespace may request: a ResourceQuota of 0 keeps
it from the others. A name that a class can't express has a reason instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from accelbind.cluster import part
from accelbind.dra.classes import Manifest
from accelbind.dra.objects import class_resources, classes_of, requests_of
from services.devices.dra import API_VERSION, DRIVER
from services.kube.objects import LABELS
from services.mappings import model
from services.mappings.accelerator import CLAIM_TEMPLATE, DEVICE_CLASS, Effects
from services.mappings.index import MappingIndex
from services.names import DEVICE_DOMAIN
from services.process.text import listing

QUOTA: Final = "accelbind-names"
_EXACTLY: Final = {"deviceClassName", "selectors", "allocationMode", "count"}
"""What a request may have that a class can have too."""
_MOST: Final = 32
"""Selectors, and configurations, of a class."""
_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"


@dataclass(frozen=True, slots=True)
class NamedClass:
    """The class for a name, or why there is none, and what counts its devices in quotas."""

    mapping: model.Mapping
    manifest: Manifest | None = None
    reason: str = ""
    counted: tuple[str, ...] = ()

    @property
    def comment(self) -> str:
        """A line for people; empty for a class."""
        if self.manifest is not None:
            return ""
        quotas = f"; in a ResourceQuota: {', '.join(self.counted)}" if self.counted else ""
        return f"# {self.mapping.label}: {self.reason}{quotas}"


class _Unfit(Exception):
    """Why no class can have a name."""


def named_classes(
    index: MappingIndex,
    classes: Mapping[str, Manifest],
    templates: Mapping[tuple[str, str], Manifest],
) -> Iterator[NamedClass]:
    """Yield what becomes of each Accelerator, by namespace and name."""
    for namespace in sorted(index.namespaces):
        names = index.namespace(namespace).accelerators.by_name
        for mapping in (names[name] for name in sorted(names)):
            template = templates.get(
                (namespace, mapping.resolution.resource.removeprefix(CLAIM_TEMPLATE))
            )
            try:
                manifest = _class(mapping, classes, template)
            except _Unfit as error:
                yield NamedClass(mapping, None, str(error), _counted(mapping, template))
            else:
                yield NamedClass(mapping, manifest)


def quotas(made: Iterable[NamedClass], namespaces: Iterable[str]) -> Iterator[Manifest]:
    """Yield a ResourceQuota for each namespace, of 0 for the names of the others."""
    classes = [(each.mapping.namespace, each.manifest) for each in made if each.manifest]
    for namespace in namespaces:
        hard = {
            key: "0"
            for owner, manifest in classes
            if owner != namespace
            for key in (  # which claims of the class count in, too
                f"requests.{manifest['spec']['extendedResourceName']}",
                f"requests.{DEVICE_CLASS}{manifest['metadata']['name']}",
            )
        }
        if hard:
            metadata = {"name": QUOTA, "namespace": namespace, "labels": LABELS}
            about = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
            yield about | {"spec": {"hard": hard}}


def _class(
    mapping: model.Mapping, classes: Mapping[str, Manifest], template: Manifest | None
) -> Manifest:
    to = mapping.resolution
    name = f"{mapping.namespace}.{mapping.name}"
    if name != name.lower() or "_" in name or len(name) > 63:
        raise _Unfit("its name is not that of a class: use at most 63 lower-case letters, - and .")
    if to.count > 1:
        raise _Unfit(f"a unit is {to.count} devices")
    if to.effects != Effects():
        raise _Unfit("it brings more than devices, such as a node selector")
    request: Manifest = {}
    config: list[Manifest] = []
    if to.resource.startswith(DEVICE_CLASS):
        of = to.resource.removeprefix(DEVICE_CLASS)
    elif to.resource.startswith(CLAIM_TEMPLATE):
        request, config = _exact_request(template)
        of = request["deviceClassName"]
    else:
        raise _Unfit(
            f"{to.resource} is a resource of a device plugin: let pods request it directly"
        )
    if of not in classes:
        raise _Unfit(f"DeviceClass {of} does not exist")
    resource = f"{mapping.namespace}.{DRIVER}/{mapping.name}"
    if resource.startswith(f"{DEVICE_DOMAIN}/"):
        raise _Unfit(f"{resource} would be a resource of accelbind's own device types")
    if name in classes and not _is_ours(classes[name]):
        raise _Unfit(f"DeviceClass {name} is somebody else's")
    taken = class_resources(classes.values())
    if others := [key for key in taken if key != name and taken[key] == resource]:
        raise _Unfit(f"DeviceClass {others[0]} has {resource} already")
    spec = part(classes[of], "spec")
    parts = {
        "selectors": [*(spec.get("selectors") or ()), *(request.get("selectors") or ())],
        "config": [*(spec.get("config") or ()), *config],
    }
    if too_long := [key for key, value in parts.items() if len(value) > _MOST]:
        raise _Unfit(f"its class and template have more than {_MOST} {too_long[0]} together")
    kept = {key: value for key, value in parts.items() if value}
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": LABELS},
        "spec": kept | {"extendedResourceName": resource},
    }


def _is_ours(item: Manifest) -> bool:
    return LABELS.items() <= part(item, "metadata", "labels").items()


def _exact_request(template: Manifest | None) -> tuple[Manifest, list[Manifest]]:
    """The only request of a template, and its configuration."""
    if template is None:
        raise _Unfit("its ResourceClaimTemplate does not exist")
    requests = requests_of(template)
    if len(requests) != 1:
        raise _Unfit("its template is a bundle, and a class is one device")
    exactly: Manifest | None = requests[0].get("exactly")
    if exactly is None:
        raise _Unfit("its template has alternatives, which a class has not")
    if more := sorted({*exactly} - _EXACTLY):
        raise _Unfit(f"its template has {listing(more)}, which a class has not")
    if exactly.get("count", 1) != 1 or exactly.get("allocationMode") == "All":
        raise _Unfit("a unit is more than one device")
    devices = template["spec"]["spec"]["devices"]
    return exactly, [{"opaque": each["opaque"]} for each in devices.get("config") or ()]


def _counted(mapping: model.Mapping, template: Manifest | None) -> tuple[str, ...]:
    """The keys of quotas that count the devices of a name."""
    resource = mapping.resolution.resource
    if not resource.startswith(CLAIM_TEMPLATE):
        return (f"requests.{resource}",)
    wanted = requests_of(template) if template else []
    return tuple(dict.fromkeys(f"{name}{_DEVICES}" for one in wanted for name in classes_of(one)))
