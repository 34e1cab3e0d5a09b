"""`accelbind demo`."""

from pathlib import Path
from typing import Annotated

import typer

from accelbind.exits import Exit
from accelbind.manifests import read_pods
from accelbind.options import default_note, file_option, manifests_option, switch
from accelbind.output import warn
from services.process.errors import InvalidSettings
from simulator.demo import own
from simulator.demo.cluster import World, demo_world, mappings_folder
from simulator.demo.play import play
from simulator.demo.show import make_console, make_picture, save_picture


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
            text=f"With -f: folder of mappings. {default_note('those of the demo')}",
            metavar="DIR",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        switch(
            "--verbose",
            "-v",
            help="Show processes, manifests, whole patches and environments too.",
        ),
    ] = False,
    keep: Annotated[
        bool,
        switch(
            "--keep",
            help="Keep everything running until Ctrl-C, and show how to use it.",
        ),
    ] = False,
    svg: Annotated[
        Path | None,
        file_option("--svg", text="Write an excerpt of the output to FILE as a picture."),
    ] = None,
) -> None:
    """Run webhook and plugins on this machine with synthetic cards.

    It needs no cluster and no card. It starts stand-ins for the API server and the
    kubelets of two nodes with synthetic cards (OPAE in mode af, DFL in mode
    region), the webhook, and one plugin per node. It creates pods that ask for
    accelerators by logical name and shows what happens to each. It uses free ports
    and a temporary folder, and removes everything at the end.

    With -f it creates your own pods, on nodes that have the cards and the
    bitstreams for them. With --keep the cluster runs until Ctrl-C, so that you can
    try kubectl, fpga program, bitstream and devices with sample bitstreams.

    Exit code 0: all pods run; 1: a pod was refused or did not start; 2: wrong
    options, or files that can't be read; 130: interrupted.

    The output fits the terminal, or COLUMNS, or 80 columns.

    [bold]Examples[/bold]
      accelbind demo
      accelbind demo --keep
      accelbind demo -f pod.yaml -f more --mappings maps
    """
    world, picture = _world(filename or [], mappings), make_picture() if svg else None
    good = play(make_console(), world, verbose=verbose, keep=keep, picture=picture)
    if svg and picture:
        save_picture(picture, svg)
    if not good:
        raise typer.Exit(Exit.NO)


def _world(files: list[Path], mappings: Path | None) -> World:
    if not files:
        if mappings is not None:
            raise InvalidSettings("--mappings goes with -f: the demo's own pods have their own")
        return demo_world()
    pods = read_pods(files)
    own_files = own.read(pods, mappings or mappings_folder())
    for problem in own_files.problems:
        warn(problem)
    return own_files.world
