"""`accelbind dra`: what administrators do for DRA; `accelbind plugin --api dra` serves it."""

import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from accelbind.dra_classes import classes, template
from accelbind.run import load_settings, with_settings
from plugin.settings import Api, PluginSettings
from services.process.errors import InvalidInput

app = typer.Typer(name="dra", add_completion=False)


@app.callback(invoke_without_command=True)
def dra(context: typer.Context) -> None:
    """Print classes and templates for DRA, and give claims back.

    The driver is served by accelbind plugin --api dra.
    """
    if context.invoked_subcommand is None:
        raise InvalidInput("the driver is served by: accelbind plugin --api dra")


app.command("classes")(classes)
app.command("template")(template)


@app.command("release")
@with_settings(PluginSettings, "state_dir", "cdi_dir", defaults={"cdi_dir": "/var/run/cdi"})
def release(
    uid: Annotated[str, typer.Argument(metavar="UID", help="The claim's UID.")],
    *,
    given: Mapping[str, Any],
) -> None:
    """Give the devices of a claim back that the kubelet has forgotten.

    The kubelet gives a claim back when the last pod that uses it has ended. Do
    this only for a claim that no container on this node uses any more: another
    claim gets its devices.

    [bold]Example[/bold]
      accelbind dra release 1c3a4e6f-8a64-4d0c-9f6a-5f0f3d8f2f11
    """
    from plugin.dra.book import FOLDER, ClaimBook  # noqa: PLC0415 - only when it runs
    from plugin.dra.claim_files import METADATA, remove_files  # noqa: PLC0415 - the same

    settings = load_settings(PluginSettings, {**given, "api": Api.DRA.value})
    book = ClaimBook(settings.state_dir / FOLDER)
    if not os.path.lexists(book.path(uid)):
        known = ", ".join(each.claim.uid for each in book.entries()) or "none"
        raise InvalidInput(f"no claim with UID {uid} is on this node; its claims: {known}")
    remove_files(settings.claims_dir, settings.state_dir / METADATA, uid)
    book.remove(uid)
    typer.echo(f"claim with UID {uid} is released")
