"""What `accelbind doctor` finds in the custom resource definitions: are they there, and ours?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from accelbind.doctor.cluster import Cluster, Json
from accelbind.doctor.model import Check, Line, failed, ok, warning

_APPLY: Final = "kubectl apply --server-side -k manifests/crd"
_OLD: Final = (
    "its objects are of v1, from before version 0.18 of Intel's suite, so the API server refuses a"
    f" definition without v1: save them, delete the definition, {_APPLY}, and write them anew as v2"
    " (docs/migration.md)"
)


@dataclass(slots=True)
class Definitions:
    """The definitions of a cluster.

    Args:
        cluster: The cluster.
    """

    cluster: Cluster

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [Check("cluster.definitions", "Are both kinds of mappings defined?", self.look)]

    def look(self) -> Iterator[Line]:
        """The custom resource definitions, and whether they are ours."""
        for plural, expected in DEFINITIONS.items():
            name = f"{plural}.fpga.intel.com"
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            found = self.cluster.get(path)
            if found is None:
                yield failed(f"{name} isn't defined: there can be no mappings", _APPLY)
                continue
            lines = [*_judged(name, found, expected)]
            yield from lines or [ok(f"{name} is accelbind's")]


@dataclass(frozen=True, slots=True)
class Definition:
    """What a definition of ours says; the tests hold it against the manifests.

    Args:
        kind: Of its objects.
        fields: Of `spec`: pattern or values of each.
        rules: How many CEL rules its `spec` and its name have.
    """

    kind: str
    fields: Mapping[str, str | tuple[str, ...]]
    rules: int


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "acceleratorfunctions": Definition(
        "AcceleratorFunction",
        {
            "afuId": "^[0-9a-f]{8,40}$",
            "interfaceId": "^[0-9a-f]{8,32}$",
            "mode": ("af", "region"),
        },
        3,
    ),
    "fpgaregions": Definition(
        "FpgaRegion", {"interfaceId": "^[0-9a-f]{8,32}$", "mode": ("regiondevel",)}, 1
    ),
}


def _judged(name: str, found: Json, expected: Definition) -> Iterator[Line]:
    spec = found.get("spec") or {}
    if spec.get("scope") != "Namespaced" or (spec.get("names") or {}).get("kind") != expected.kind:
        yield failed(f"{name} defines something else than {expected.kind}s", _APPLY)
        return
    served: list[Json] = [one for one in spec.get("versions") or () if one.get("name") == "v2"]
    version: Json = served[0] if served else {}
    if not version.get("served"):
        stored = (found.get("status") or {}).get("storedVersions") or ()
        todo = _OLD if "v1" in stored else _APPLY
        yield failed(f"{name} doesn't serve version v2, which everything asks for", todo)
        return
    for one in (found.get("status") or {}).get("conditions") or ():
        if one.get("type") in {"Established", "NamesAccepted"} and one.get("status") != "True":
            yield failed(f"{name}: {one['type']} is not true: {one.get('message')}", _APPLY)
    different = [*_differences(version, expected)]
    if different:
        yield warning(
            f"{name} isn't accelbind's ({'; '.join(different)}): it works, but takes mappings"
            " that no pod can use",
            f"{_APPLY}; objects stay as they are",
        )


def _differences(version: Json, expected: Definition) -> Iterator[str]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    properties = schema.get("properties") or {}
    spec = properties.get("spec") or {}
    for name, wanted in expected.fields.items():
        got = (spec.get("properties") or {}).get(name) or {}
        said = got.get("pattern") if isinstance(wanted, str) else tuple(got.get("enum") or ())
        if said != wanted:
            yield f"spec.{name} takes other values"
    name_of = ((properties.get("metadata") or {}).get("properties") or {}).get("name") or {}
    rules = sum(len(each.get("x-kubernetes-validations") or ()) for each in (spec, name_of))
    if rules < expected.rules:
        yield "rules are missing"
