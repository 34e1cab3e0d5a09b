"""`accelbind dra`: serve this node's devices to DRA, and what belongs to it."""

import os
from typing import Annotated

import typer

from accelbind import __version__
from accelbind.dra_classes import classes, template
from accelbind.run import settings_command, with_settings
from dra.settings import DraSettings

app = typer.Typer(name="dra", add_completion=False)


def serve(settings: DraSettings, context: typer.Context) -> None:
    """Serve this node's devices to DRA (Dynamic Resource Allocation).

    Publishes FPGAs and the devices of device types as ResourceSlices, and
    prepares the claims that get them: programs functions, and gives containers
    their device nodes by CDI. Needs Kubernetes 1.36 and a container runtime with
    CDI. Ends cleanly on SIGTERM. Each option may also be a variable
    ACCELBIND_<OPTION>. A TIME is a number with ms, s, m, h or d behind it; a
    bare number counts seconds.

    [bold]Examples[/bold]
      accelbind dra
      accelbind dra --device-types /etc/accelbind/device-types
      accelbind dra release 1c3a… --state-dir /run/accelbind
    """
    import asyncio  # noqa: PLC0415 - only when it runs

    from dra.process import run  # noqa: PLC0415 - the same

    asyncio.run(run(settings, version=__version__, driver_calls=context.obj.driver_calls))


app.callback(invoke_without_command=True)(settings_command(DraSettings, serve))
app.command("classes")(classes)
app.command("template")(template)


@app.command("release")
@with_settings(DraSettings, "state_dir", "cdi_dir")
def release(
    uid: Annotated[str, typer.Argument(metavar="UID", help="The claim's UID.")],
    *,
    settings: DraSettings,
) -> None:
    """Give the devices of a claim back that the kubelet has forgotten.

    The kubelet gives a claim back when the last pod that uses it has ended. Do
    this only for a claim that no container on this node uses any more: another
    claim gets its devices.

    [bold]Example[/bold]
      accelbind dra release 1c3a4e6f-8a64-4d0c-9f6a-5f0f3d8f2f11
    """
    from dra.book import FOLDER, ClaimBook  # noqa: PLC0415 - only when it runs
    from services.devices.cdi import claim_file  # noqa: PLC0415 - the same
    from services.devices.cdi_files import CdiFolder  # noqa: PLC0415 - the same
    from services.process.errors import HardwareError, InvalidInput  # noqa: PLC0415 - the same

    book = ClaimBook(settings.state_dir / FOLDER)
    if not os.path.lexists(book.path(uid)):
        known = ", ".join(each.claim.uid for each in book.entries()) or "none"
        raise InvalidInput(f"no claim with UID {uid} is on this node; its claims: {known}")
    if error := CdiFolder(settings.cdi_dir, claim_file(uid)).write(b"").error:
        raise HardwareError(error)
    book.remove(uid)
    typer.echo(f"claim with UID {uid} is released")
