"""`accelbind names`: those of a namespace, and between ids and resource names."""

from typing import Annotated

import typer

from accelbind.name_list import list_names
from accelbind.output import Output, fact_lines, print_result
from services.names import (
    DOMAIN,
    FunctionName,
    canonical_id,
    decode,
    function_name,
    region_name,
)

Interface = Annotated[
    str, typer.Argument(metavar="INTERFACE", help="Interface id: any case, with or without '-'.")
]

app = typer.Typer(
    name="names",
    help="List the names of a namespace, and translate ids and resource names.",
    no_args_is_help=True,
    add_completion=False,
)


app.command("list")(list_names)


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
