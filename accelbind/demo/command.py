"""`accelbind demo`."""

from typing import Annotated

import typer


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the temporary folder, with all logs, in place.")
    ] = False,
) -> None:
    """See the whole suite at work on this machine: no cluster, no card.

    Lays out two nodes with synthetic cards (OPAE in mode af, DFL in mode region),
    starts stand-ins for the API server and the kubelets, the webhook and a plugin
    a node as processes of their own, creates pods by logical name, and shows what
    becomes of them. Uses free ports and a temporary folder, and leaves nothing.

    [bold]Examples[/bold]
      accelbind demo
      accelbind demo --keep
    """
    import shutil  # noqa: PLC0415 - the overview of commands needs none of these

    from accelbind.demo.folder import make_folder  # noqa: PLC0415 - as above
    from accelbind.demo.show import make_console  # noqa: PLC0415 - as above
    from accelbind.demo.story import play  # noqa: PLC0415 - as above

    folder = make_folder()
    try:
        good = play(folder, make_console())
    finally:
        if keep:
            typer.echo(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if not good:
        raise typer.Exit(1)
