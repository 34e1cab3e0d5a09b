"""`accelbind names`: between ids and resource names."""

from typing import Annotated

import typer

from accelbind.output import Output, OutputFormat, print_facts, print_json
from services.names import (
    DOMAIN,
    FunctionName,
    RegionName,
    canonical_id,
    decode,
    function_name,
    region_name,
)

Interface = Annotated[
    str, typer.Argument(metavar="INTERFACE", help="Interface id: any case, with or without '-'.")
]

_TITLES = {"resource": "resource", "interfaceId": "interface id", "afuId": "AFU id"}

app = typer.Typer(
    name="names",
    help="Translate between ids and resource names.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def names() -> None:
    """Translate between ids and resource names."""


@app.command("af")
def af(
    interface: Interface,
    afu: Annotated[str, typer.Argument(metavar="AFU", help="AFU id, as the interface id.")],
    *,
    output: Output = OutputFormat.TEXT,
) -> None:
    r"""Show the resource of a function that nodes of mode af offer.

    [bold]Example[/bold]
      accelbind names af ce48969398f05f33946d560708be108a \
        d8424dc4a4a3c413f89e433683f9040b
    """
    name = function_name(interface, afu)
    ids = FunctionName(canonical_id(interface), canonical_id(afu))
    _show(name, ids, output, name_only=True)


@app.command("region")
def region(interface: Interface, *, output: Output = OutputFormat.TEXT) -> None:
    """Show the resource of a region that nodes of mode region or regiondevel offer.

    [bold]Example[/bold]
      accelbind names region ce48969398f05f33946d560708be108a
    """
    _show(region_name(interface), RegionName(canonical_id(interface)), output, name_only=True)


@app.command("decode")
def decode_(
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE", help=f"af-… or region-…, with or without {DOMAIN}/ before it."
        ),
    ],
    *,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Decode a resource name into its ids.

    [bold]Example[/bold]
      accelbind names decode af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs
    """
    _show(resource.removeprefix(f"{DOMAIN}/"), decode(resource), output)


def _show(
    name: str, ids: RegionName | FunctionName, output: OutputFormat, *, name_only: bool = False
) -> None:
    facts = {"resource": f"{DOMAIN}/{name}", "interfaceId": ids.interface_id}
    if isinstance(ids, FunctionName):
        facts["afuId"] = ids.afu_id
    if output is OutputFormat.JSON:
        print_json(facts)
    elif name_only:
        typer.echo(facts["resource"])
    else:
        print_facts({_TITLES[key]: value for key, value in facts.items()})
