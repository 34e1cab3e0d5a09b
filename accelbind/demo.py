"""`accelbind demo`."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelbind.options import default_note, file_option, manifests_option

if TYPE_CHECKING:
    from simulator.demo.own import OwnPods


def demo(
    *,
    filename: Annotated[
        list[Path] | None,
        manifests_option(
            "--filename", "-f", text="Create these pods instead, from YAML or JSON manifests."
        ),
    ] = None,
    mappings: Annotated[
        Path | None,
        file_option(
            "--mappings",
            text="With -f: folder of AcceleratorFunctions and FpgaRegions."
            f" {default_note('those of the demo')}",
            metavar="DIR",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the temporary folder with all logs.")
    ] = False,
) -> None:
    """See the whole suite at work on this machine: no cluster, no card.

    Creates two nodes with synthetic cards (OPAE in mode af, DFL in mode region),
    starts stand-ins for the API server and the kubelets, the webhook and one
    plugin per node as processes, creates pods by logical name, and shows what
    happens to them. Uses free ports and a temporary folder, and cleans up.

    With -f it creates your own pods, on nodes that have the cards and the
    bitstreams for them. Exit code 1: a pod was refused, or did not start.

    [bold]Examples[/bold]
      accelbind demo
      accelbind demo --keep
      accelbind demo -f pod.yaml -f more --mappings maps
    """
    # Only when the demo runs: its help needs none of these.
    from simulator.demo.folder import make_folder  # noqa: PLC0415
    from simulator.demo.show import make_console  # noqa: PLC0415
    from simulator.demo.story import play, play_own  # noqa: PLC0415

    own = _own_pods(filename or [], mappings)
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


def _own_pods(filenames: list[Path], mappings: Path | None) -> "OwnPods | None":
    """The pods of -f and a cluster for them; None for the demo's own pods."""
    from accelbind.manifests import read_pods  # noqa: PLC0415 - as above
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - as above
    from simulator.demo import own  # noqa: PLC0415 - as above
    from simulator.demo.cluster import mappings_folder  # noqa: PLC0415 - as above

    if not filenames:
        if mappings is not None:
            raise InvalidSettings("--mappings goes with -f: the demo's own pods have their own")
        return None
    found = own.read(read_pods(filenames), mappings or mappings_folder())
    for problem in found.problems:
        typer.echo(f"warning: {problem}", err=True)
    return found
