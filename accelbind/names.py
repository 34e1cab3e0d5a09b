"""`accelbind names`: the names of a namespace, and ids as resource names."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from accelbind.cluster import Reader, Target, with_target
from accelbind.flags import is_namespace, namespace_option, with_settings
from accelbind.mappings import read_index, resource_of
from accelbind.offers import Offer, Offers, read_offers
from accelbind.output import Output, fact_lines, print_result, table_lines
from services.admission.mutate import Policy
from services.kube.client import ClusterClient
from services.kube.lists import decode_object
from services.mappings.accelerator import CLAIM_TEMPLATE
from services.mappings.index import MappingIndex, NamespaceMappings, NameTable, build_namespace
from services.mappings.kinds import ACCELERATOR, TABLE
from services.mappings.model import Mapping
from services.mappings.source import list_entries
from services.names import DOMAIN, FunctionName, canonical_id, decode, function_name, region_name
from services.process.errors import InvalidSettings
from services.process.text import listing, plain
from webhook.settings import ReviewSettings

_TITLES: Final = ("NAME", "FROM", "BECOMES", "OFFERED ON", "FREE", "NOTE")
_NODES: Final = 3
_NOTE: Final = 200
_UNKNOWN: Final = "unknown"
_PUBLISHED: Final = "/api/v1/namespaces/kube-public/configmaps/accelbind"
"""`manifests/templates/shared.yaml`."""

Interface = Annotated[
    str, typer.Argument(metavar="INTERFACE", help="Interface id: any case, with or without '-'.")
]

app = typer.Typer(
    help="List the names of a namespace, and translate ids and resource names.",
    no_args_is_help=True,
)


@app.command("list")
@with_settings(
    ReviewSettings, *("domain", "accelerator_domain", "shared_namespace"), group="As the webhook's"
)
@with_target
def list_(
    *,
    namespace: Annotated[
        str | None, namespace_option("Whose names to list.", "the kubeconfig's, or default")
    ] = None,
    output: Output = "text",
    target: Target,
    settings: ReviewSettings,
) -> None:
    """List the names that pods of a namespace can request.

    Each with its replacement, where that is offered, and how many are free now. Names
    that all namespaces share are marked: they are of --shared-namespace, or of the
    namespace that the Helm chart has published. FREE needs
    the right to list the pods and the claims of all namespaces; what is missing is
    named. Of a class of another driver it is a bound, since no selector is evaluated.
    Taints of nodes are not looked at, since pods may tolerate them.

    [bold]Examples[/bold]
      accelbind names list -n team-a
      accelbind names list -n team-a --shared-namespace accelerators -o json
    """
    policy, used = settings.policy(), namespace or target.namespace()
    found = target.query(lambda client: read_names(client, policy, used))
    print_result(output, found.document(), _lines(found))


@app.command("af")
def af(
    interface: Interface,
    afu: Annotated[str, typer.Argument(metavar="AFU", help="AFU id, as the interface id.")],
    *,
    output: Output = "text",
) -> None:
    r"""Show the resource of a function that nodes of mode af offer.

    [bold]Example[/bold]
      accelbind names af ce48969398f05f33946d560708be108a \
        d8424dc4a4a3c413f89e433683f9040b
    """
    resource = f"{DOMAIN}/{function_name(interface, afu)}"
    ids = {"interfaceId": canonical_id(interface), "afuId": canonical_id(afu)}
    print_result(output, {"resource": resource} | ids, [resource])


@app.command("region")
def region(interface: Interface, *, output: Output = "text") -> None:
    """Show the resource of a region that nodes of mode region or regiondevel offer.

    [bold]Example[/bold]
      accelbind names region ce48969398f05f33946d560708be108a
    """
    resource = f"{DOMAIN}/{region_name(interface)}"
    facts = {"resource": resource, "interfaceId": canonical_id(interface)}
    print_result(output, facts, [resource])


@app.command("decode")
def decode_(
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE", help=f"af-… or region-…, with or without {DOMAIN}/ before it."
        ),
    ],
    *,
    output: Output = "text",
) -> None:
    """Decode a resource name into its ids.

    [bold]Example[/bold]
      accelbind names decode af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs
    """
    name = decode(resource)
    facts = {"resource": f"{DOMAIN}/{resource.removeprefix(f'{DOMAIN}/')}"}
    facts["interfaceId"] = name.interface_id
    if isinstance(name, FunctionName):
        facts["afuId"] = name.afu_id
    print_result(output, facts, fact_lines(facts))


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that pods of a namespace can request."""

    key: str
    namespace: str
    """Of its mapping."""
    shared: bool
    mapping: Mapping | None
    offer: Offer
    note: str

    @property
    def becomes(self) -> str:
        """What replaces a unit of it."""
        if self.mapping is None:
            return ""
        to, domain = self.mapping.resolution, self.key.partition("/")[0]
        if to.resource.startswith(CLAIM_TEMPLATE):
            text = f"a claim of template {to.resource.removeprefix(CLAIM_TEMPLATE)}"
        else:
            text = resource_of(self.mapping, domain)
        also = to.effects.also if to.effects else ()
        amounts = [(to.count, text), *((each.count, each.resource) for each in also)]
        return listing([each if count == 1 else f"{count} of {each}" for count, each in amounts])


@dataclass(frozen=True, slots=True)
class NameList:
    """The names that pods of a namespace can request."""

    namespace: str
    names: list[_Name]
    missing: list[str]
    """What may not be listed."""
    shared_namespace: str
    """The namespace of those that all namespaces share; empty if it is unknown."""

    def document(self) -> dict[str, Any]:
        """The names for programs."""
        names = [*map(_as_object, self.names)]
        return {
            "namespace": self.namespace,
            "sharedNamespace": self.shared_namespace or None,
            "names": names,
            "missing": self.missing,
        }


async def read_names(client: ClusterClient, policy: Policy, namespace: str) -> NameList:
    """Read the names of a namespace.

    Raises:
        ClusterError: The API server does not answer, or its mappings can't be listed.
        InvalidSettings: There is no such namespace.
    """
    if not policy.shared_namespace:
        policy = replace(policy, shared_namespace=await _published_namespace(client))
    index = await read_index(client, [namespace])
    if not any(each.by_name or each.rejected for each in index.namespace(namespace).tables):
        await _require_namespace(client, namespace)
    offers = await read_offers(client, namespace)
    if policy.shared_namespace not in ("", namespace):
        index = index.with_namespaces(await _read_shared(client, policy, offers))
    names = [*_names(index, offers, policy, namespace)]
    return NameList(namespace, names, offers.missing, policy.shared_namespace)


async def _published_namespace(client: ClusterClient) -> str:
    """The namespace of the names that all share, as the chart publishes it; empty if unknown."""
    found = await Reader(client).allowed(client.get(_PUBLISHED))
    data = (await decode_object(found, _PUBLISHED)).get("data") if found else None
    name = data.get("sharedNamespace") if isinstance(data, dict) else None
    return name if isinstance(name, str) and is_namespace(name) else ""


async def _require_namespace(client: ClusterClient, namespace: str) -> None:
    """Raise InvalidSettings if a namespace does not exist, as far as that may be read."""
    reader = Reader(client)
    found = await reader.allowed(client.get(f"/api/v1/namespaces/{namespace}"))
    if found is None and not reader.problems:
        raise InvalidSettings(f"namespace {plain(namespace)} does not exist")


async def _read_shared(
    client: ClusterClient, policy: Policy, offers: Offers
) -> list[NamespaceMappings]:
    namespace = policy.shared_namespace
    reading = list_entries(client, namespace, [TABLE[ACCELERATOR]])
    note = f"the shared names in namespace {plain(namespace)}"
    entries = await Reader(client, offers.missing).allowed(reading, note=note)
    return [] if entries is None else [build_namespace(namespace, entries)]


def _names(index: MappingIndex, offers: Offers, policy: Policy, namespace: str) -> Iterator[_Name]:
    own = index.namespace(namespace)
    tables: list[tuple[NameTable, str]] = [
        (own, policy.domains[0]),
        (own.accelerators, policy.accelerator_domains[0]),
    ]
    if policy.shared_namespace not in ("", namespace):
        tables.append((policy.shared(index), policy.accelerator_domains[0]))
    known: set[str] = set()
    for table, domain in tables:
        shared = table.namespace != namespace
        for name in sorted({*table.by_name, *table.rejected}):
            key = f"{domain}/{name}"
            if key in known:
                continue
            known.add(key)
            mapping = table.by_name.get(name)
            if mapping is None:
                yield _Name(key, table.namespace, shared, None, Offer(), table.rejected[name])
                continue
            note = "" if mapping.deprecated is None else f"deprecated {mapping.deprecated}".strip()
            offer = offers.of(mapping, namespace, domain)
            yield _Name(key, table.namespace, shared, mapping, offer, note)


def _as_object(name: _Name) -> dict[str, Any]:
    offer = name.offer
    return {
        "name": name.key,
        "namespace": name.namespace,
        "shared": name.shared,
        "becomes": name.becomes,
        "usable": name.mapping is not None,
        "nodes": None if offer.nodes is None else [*offer.nodes],
        "free": offer.free,
        "freeIsBound": offer.is_bound,
        "note": name.note,
    }


def _lines(found: NameList) -> Iterator[str]:
    if found.names:
        yield from table_lines(_TITLES, map(_cells, found.names))
    else:
        of_its_own = "" if found.shared_namespace else " of its own"
        yield f"namespace {found.namespace} has no names{of_its_own}: ask an administrator for one"
    if not found.shared_namespace:
        yield "names that all namespaces share, if there are any, are those of --shared-namespace"
    if found.missing:
        yield f"{_UNKNOWN}, since you may not list {listing(found.missing)}"


def _cells(name: _Name) -> tuple[str, ...]:
    offer = name.offer
    origin = f"{plain(name.namespace)} (shared)" if name.shared else plain(name.namespace)
    nodes, free = _UNKNOWN, _UNKNOWN
    if name.mapping is None:
        nodes = free = ""
    if offer.nodes is not None:
        shown = [*map(plain, offer.nodes)]
        nodes = listing(shown, most=_NODES) if shown else "no node"
    if offer.free is not None:
        free = f"at most {offer.free}" if offer.is_bound else str(offer.free)
    becomes = name.becomes or "can't be used"
    return name.key, origin, becomes, nodes, free, plain(name.note, _NOTE)
