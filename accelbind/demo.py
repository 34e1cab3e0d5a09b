"""`accelbind demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelbind.options import default_note

if TYPE_CHECKING:
    from simulator.demo.own import OwnPods


def demo(
    *,
    filename: Annotated[
        Path | None,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Create the pods of this manifest instead, YAML or JSON; - is stdin.",
            readable=False,
        ),
    ] = None,
    mappings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With -f: a folder of AcceleratorFunctions and FpgaRegions."
            f" {default_note('those of the demo')}",
            readable=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the temporary folder, with all logs, in place.")
    ] = False,
) -> None:
    """See the whole suite at work on this machine: no cluster, no card.

    Lays out two nodes with synthetic cards (OPAE in mode af, DFL in mode region),
    starts stand-ins for the API server and the kubelets, the webhook and a plugin
    a node as processes of their own, creates pods by logical name, and shows what
    becomes of them. Uses free ports and a temporary folder, and leaves nothing.

    With -f it creates your own pods, on nodes that have the cards and the
    bitstreams for them. Exit code 1: one of them was refused, or didn't start.

    [bold]Examples[/bold]
      accelbind demo
      accelbind demo --keep
      accelbind demo -f pod.yaml --mappings maps
    """
    import shutil  # noqa: PLC0415 - the overview of commands needs none of these

    from simulator.demo.folder import make_folder  # noqa: PLC0415 - as above
    from simulator.demo.show import make_console  # noqa: PLC0415 - as above
    from simulator.demo.story import play, play_own  # noqa: PLC0415 - as above

    own = _own(filename, mappings)
    folder = make_folder()
    try:
        good = play_own(folder, make_console(), own) if own else play(folder, make_console())
    finally:
        if keep:
            typer.echo(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if not good:
        raise typer.Exit(1)


def _own(filename: Path | None, mappings: Path | None) -> "OwnPods | None":
    """What -f and --mappings say; None for the demo's own pods.

    Raises:
        AskerError: they don't go together, or can't be used.
    """
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - as above
    from simulator.demo import own  # noqa: PLC0415 - as above
    from simulator.demo.cluster import mappings_folder  # noqa: PLC0415 - as above

    if filename is None:
        if mappings is not None:
            raise InvalidSettings("--mappings goes with -f: the demo's own pods have their own")
        return None
    found = own.read(filename, mappings or mappings_folder())
    for problem in found.problems:
        typer.echo(f"warning: {problem}", err=True)
    return found
