"""`accelbind demo`: webhook and plugins on this machine, with synthetic cards."""

from pathlib import Path
from typing import Annotated

import typer

from accelbind.flags import default_note, file_option, manifests_option, switch
from accelbind.manifests import read_pods
from accelbind.output import Exit, warn
from services.process.errors import InvalidSettings
from simulator.demo import own, vendor
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
    device_types: Annotated[
        Path | None,
        file_option(
            "--device-types",
            text="Serve this folder of device types, and create a pod for each resource.",
            metavar="DIR",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        file_option(
            "--root",
            text="With --device-types: folder with sys/ and dev/, such as a copy of those of a"
            f" node. {default_note('/')}",
            metavar="TREE",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        switch(
            "--verbose", "-v", help="Show processes, manifests, whole patches and environments too."
        ),
    ] = False,
    keep: Annotated[
        bool, switch("--keep", help="Keep everything running until Ctrl-C, and show how to use it.")
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
    bitstreams for them. With --device-types a node serves your own devices: those of
    this machine, or of a copy of a node's sys/ and dev/; a pod requests each resource.
    With --keep the cluster runs until Ctrl-C, so that you can try kubectl, fpga
    program, bitstream and devices with sample bitstreams.

    Exit code 0: all pods run; 1: a pod was refused or did not start; 2: wrong
    options, or files that can't be read; 130: interrupted.

    The output fits the terminal, or COLUMNS, or 80 columns.

    [bold]Examples[/bold]
      accelbind demo
      accelbind demo --keep
      accelbind demo -f pod.yaml -f more --mappings maps
      accelbind demo --device-types types --root copy
    """
    if device_types is None:
        if root is not None:
            raise InvalidSettings("--root goes with --device-types: the demo makes its own devices")
        world = _world(filename or [], mappings)
    elif filename or mappings:
        raise InvalidSettings("--device-types has pods of its own: leave out -f and --mappings")
    else:
        world = _reported(vendor.read(device_types, root or Path("/")))
    picture = make_picture() if svg else None
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
    return _reported(own.read(pods, mappings or mappings_folder()))


def _reported(planned: own.OwnPods) -> World:
    for problem in planned.problems:
        warn(problem)
    return planned.world
