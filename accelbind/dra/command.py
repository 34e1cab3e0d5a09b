"""`accelbind dra`: what administrators do for DRA; `accelbind plugin --api dra` serves it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from accelbind.cluster import DEFAULT_NAMESPACE, Target, with_target
from accelbind.dra.bundles import bundle_template, read_bundle
from accelbind.dra.classes import FpgaClass, claim_template, fpga_classes, type_class
from accelbind.dra.named import NamedClass, named_classes, quotas
from accelbind.dra.objects import CLASSES, templates_path
from accelbind.flags import (
    Given,
    Mappings,
    file_option,
    load_settings,
    namespace_option,
    require_folder,
    switch,
    with_settings,
)
from accelbind.manifests import read_objects, yaml_text
from accelbind.mappings import read_index, read_mappings
from accelbind.output import warn
from plugin.dra.book import FOLDER, ClaimBook
from plugin.dra.claim_files import METADATA, remove_files
from plugin.settings import Api, PluginSettings
from services.devices.hardware.scan import scan
from services.devices.types.load import load_types
from services.kube.client import ClusterClient
from services.kube.lists import MAX_SURVEY, list_objects
from services.mappings.accelerator import DEVICE_CLASS
from services.mappings.index import MappingIndex
from services.mappings.model import Mapping, Mode
from services.node.settings import NodeSettings
from services.process.errors import InvalidInput, InvalidMapping, InvalidSettings
from services.process.text import plain
from services.programming.assignment import regions_of

_NODE: Final = "Node: as the driver's"

app = typer.Typer()


@app.callback(invoke_without_command=True)
def dra(context: typer.Context) -> None:
    """Print classes and templates for DRA, and give claims back.

    The driver is served by accelbind plugin --api dra.
    """
    if context.invoked_subcommand is None:
        raise InvalidInput("the driver is served by: accelbind plugin --api dra")


@app.command("classes")
@with_settings(NodeSettings, "root", "device_types", "resource_domain", group=_NODE)
@with_target
def classes(
    *,
    mappings: Mappings = None,
    on_node: Annotated[
        bool, switch("--node", help="For the FPGAs of this node.", rich_help_panel=_NODE)
    ] = False,
    names: Annotated[
        bool, switch("--names", help="For the Accelerators of the cluster, with quotas.")
    ] = False,
    target: Target,
    settings: NodeSettings,
) -> None:
    """Print the DeviceClasses for pods that request resources, as YAML.

    A class has the resource that pods request: its extendedResourceName. There is
    one for each function of mode af, one for all functions of an interface that are
    programmed, one for regions that workloads program themselves, and one for each
    device type of --device-types.

    Reads the mappings of the cluster, or those of the folder --mappings. With --node
    the classes are for the regions of this node and the functions in them, and with
    --device-types alone for these types.

    With --names there is one for each Accelerator of the cluster that stands for one
    device of a DeviceClass: NAMESPACE.accelbind.dev/NAME is a resource that pods
    request without the webhook. A ResourceQuota keeps it from other namespaces that
    exist now. For other names there is a comment with the reason.

    [bold]Examples[/bold]
      accelbind dra classes | kubectl apply -f -
      accelbind dra classes --mappings maps
      accelbind dra classes --device-types ./types
      accelbind dra classes --node
    """
    if names:
        if mappings is not None or on_node or settings.device_types is not None:
            raise InvalidSettings("--names excludes --mappings, --node and --device-types")
        _print_names(target)
        return
    wanted: list[tuple[FpgaClass, str]] = []
    if on_node:
        wanted += _of_node(settings)
    types = [*map(type_class, _types(settings))]
    if mappings is not None or not (on_node or types):
        wanted += _of_mappings(read_mappings(mappings, target, [None]))
    manifests = [*fpga_classes(wanted), *types]
    if not manifests:
        raise InvalidSettings(
            "there is nothing to make a DeviceClass for: create a mapping of a function or region,"
            " or use --mappings, --device-types or --node"
        )
    for each in manifests:
        if "extendedResourceName" not in each["spec"]:
            name = each["metadata"]["name"]
            warn(
                f"{name} has no extendedResourceName, since pods that request the resource have it"
                " programmed; pods that program the region use accelbind dra template, or request"
                f" {DEVICE_CLASS}{name}"
            )
    typer.echo(yaml_text(*manifests), nl=False)


def _print_names(target: Target) -> None:
    async def read(client: ClusterClient) -> tuple[list[NamedClass], list[str]]:
        index = await read_index(client, [None])
        paths = (CLASSES, templates_path(None), "/api/v1/namespaces")
        classes, templates, namespaces = [
            await list_objects(client, path, dict[str, Any], most=MAX_SURVEY) for path in paths
        ]
        made = named_classes(
            index,
            {each["metadata"]["name"]: each for each in classes},
            {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in templates},
        )
        return [*made], [each["metadata"]["name"] for each in namespaces]

    made, namespaces = target.query(read)
    for each in made:
        if each.comment:
            typer.echo(plain(each.comment, 1000))
    manifests = [each.manifest for each in made if each.manifest]
    typer.echo(yaml_text(*manifests, *quotas(made, namespaces)), nl=False)


def _of_mappings(index: MappingIndex) -> Iterator[tuple[FpgaClass, str]]:
    for namespace in sorted(index.namespaces):
        for mapping in index.namespace(namespace).by_name.values():
            of = FpgaClass.of(mapping)
            if of is not None:
                yield of, f"{mapping.namespace}/{mapping.name}"


def _of_node(settings: NodeSettings) -> Iterator[tuple[FpgaClass, str]]:
    require_folder(settings.root)
    inventory = scan(settings.root)
    for region in regions_of(inventory).values():
        if region.interface_id:
            yield FpgaClass(Mode.REGION, region.interface_id), ""
            for port in region.ports:
                if port.afu_id:
                    yield FpgaClass(Mode.AF, region.interface_id, port.afu_id), ""


def _types(settings: NodeSettings) -> Iterator[Any]:
    if settings.device_types is None:
        return
    loaded = load_types(settings.device_types, domains=settings.resource_domain)
    for problem in loaded.problems:
        warn(plain(str(problem), 1000))
    yield from loaded.types


@app.command("template")
@with_target
def template(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a mapping; with -f, of the template.")
    ],
    *,
    filename: Annotated[
        Path | None, file_option("--filename", "-f", text="A bundle of devices, as YAML.")
    ] = None,
    mappings: Mappings = None,
    namespace: Annotated[
        str | None,
        namespace_option("Namespace of the mapping.", f"the kubeconfig's, or {DEFAULT_NAMESPACE}"),
    ] = None,
    target: Target,
) -> None:
    """Print a ResourceClaimTemplate for a mapping or a bundle, as YAML.

    A pod names the template in spec.resourceClaims, and the claim in
    resources.claims of a container. For a function that is programmed, a region that
    carries it comes first, then an empty one, then any: successive pods of a few
    functions are programmed as rarely as possible. The DeviceClass of accelbind dra
    classes must be there.

    With -f it is for devices of any driver: several together, the first of some
    alternatives, or a share of one. An Accelerator with target.claimTemplate gives
    it a name.

    [bold]Examples[/bold]
      accelbind dra template nlb0 | kubectl apply -f -
      accelbind dra template nlb0 -n team-a --mappings maps
      accelbind dra template gpu-nic -n team-a -f bundle.yaml
    """
    if filename is not None:
        bundle, *others = read_objects([filename], read_bundle, "no bundle")
        if others:
            raise InvalidSettings(f"{filename} has more than one bundle: a template is for one")
        found = bundle_template(bundle, name, namespace or target.namespace())
    else:
        found = claim_template(_mapping(name, mappings, target, namespace))
    typer.echo(yaml_text(found), nl=False)


def _mapping(name: str, mappings: Path | None, target: Target, namespace: str | None) -> Mapping:
    namespace = namespace or (DEFAULT_NAMESPACE if mappings else target.namespace())
    names = read_mappings(mappings, target, [namespace]).namespace(namespace)
    mapping = names.by_name.get(name) or names.accelerators.by_name.get(name)
    if mapping is None:
        rejected = {**names.rejected, **names.accelerators.rejected}
        why = rejected.get(name, f"{plain(name)} does not exist in namespace {namespace}")
        known = ", ".join(sorted(names.by_name)[:8])
        raise InvalidMapping(f"{why}{known and f'; there are {known}'}")
    return mapping


@app.command("release")
@with_settings(PluginSettings, "state_dir", "cdi_dir", defaults={"cdi_dir": "/var/run/cdi"})
def release(
    uid: Annotated[str, typer.Argument(metavar="UID", help="The claim's UID.")], *, given: Given
) -> None:
    """Give the devices of a claim back that the kubelet has forgotten.

    The kubelet gives a claim back when the last pod that uses it has ended. Do
    this only for a claim that no container on this node uses any more: another
    claim gets its devices.

    [bold]Example[/bold]
      accelbind dra release 1c3a4e6f-8a64-4d0c-9f6a-5f0f3d8f2f11
    """
    settings = load_settings(PluginSettings, {**given, "api": Api.DRA.value})
    book = ClaimBook(settings.state_dir / FOLDER)
    if not os.path.lexists(book.path(uid)):
        known = ", ".join(each.claim.uid for each in book.entries()) or "none"
        raise InvalidInput(f"no claim with UID {uid} is on this node; its claims: {known}")
    remove_files(settings.claims_dir, settings.state_dir / METADATA, uid)
    book.remove(uid)
    typer.echo(f"claim with UID {uid} is released")
