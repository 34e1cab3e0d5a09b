"""What options of several commands have in common: times, defaults, domains."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer


def default_note(text: str) -> str:
    """A default for the end of an option's help, as Typer shows the defaults that it knows."""
    return rf"[dim]\[default: {text}][/dim]"


def time_between(least: float, most: float = 1e10) -> Callable[[str | float], float]:
    """A parser for an option that is a time, such as `5s`; it gives seconds.

    Args:
        least: In seconds.
        most: In seconds.
    """

    def parse(value: str | float) -> float:
        # Only where such an option is read: pydantic takes its time.
        from services.process.settings import duration, seconds_text  # noqa: PLC0415

        try:
            seconds = duration(value).total_seconds()
        except ValueError as error:
            raise typer.BadParameter(f"{value!r:.80}: {error}") from error
        if not least <= seconds <= most:
            raise typer.BadParameter(
                f"{value!r:.80}: a time from {seconds_text(least)} to {seconds_text(most)}"
            )
        return seconds

    return parse


def whole_days(value: str | int) -> int:
    """Reads an option that is a number of days, such as `90d` or `90`."""
    from services.process.settings import duration  # noqa: PLC0415 - as above

    try:
        time = duration(value, unit="d")
    except ValueError as error:
        raise typer.BadParameter(f"{value!r:.80}: {error}") from error
    if time.seconds or time.microseconds:
        raise typer.BadParameter(f"{value!r:.80}: it counts whole days, such as 90d")
    return time.days


def timeout_option(default: str) -> Any:  # noqa: ANN401 - what `typer.Option` is declared to give
    """`--timeout`, which has to be given this default, in seconds, as its value."""
    return typer.Option(
        "--timeout",
        metavar="TIME",
        help=f"How long it may take. {default_note(default)}",
        parser=time_between(0.1),
        show_default=False,
    )


Domains = Annotated[
    list[str] | None,
    typer.Option(
        "--domain",
        metavar="DOMAIN",
        help=f"As the webhook's --domain; repeat it for more. {default_note('fpga.intel.com')}",
    ),
]
FOUND_KUBECONFIG: Final = "$KUBECONFIG, or ~/.kube/config"
"""Where `find_kubeconfig` looks."""


def find_kubeconfig(given: Path | None) -> Path | None:
    """The file that was given, or the one that kubectl would take if `KUBECONFIG` names none.

    None leaves it to `KUBECONFIG`, or to the service account of a pod.
    """
    usual = Path.home() / ".kube" / "config"
    return given or (usual if "KUBECONFIG" not in os.environ and usual.is_file() else None)
