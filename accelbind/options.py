"""Options that several commands share, and how an option's default and time are written."""

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from services.names import DEVICE_DOMAIN
from services.process.settings import duration, seconds_text

FOUND_KUBECONFIG: Final = "$KUBECONFIG, ~/.kube/config, or the pod's service account"
"""Where `find_kubeconfig` looks."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A label of RFC 1123."""


def default_note(text: str) -> str:
    """A default at the end of an option's help, as Typer shows the defaults that it knows."""
    return rf"[dim]\[default: {text}][/dim]"


def time_option(
    flag: str, text: str, default: str, *, least: float = 0.1, most: float = 1e10
) -> Any:  # noqa: ANN401 - what `typer.Option` is declared to return
    """An option that is a time, such as `5s`, of `least` to `most` seconds; it gives seconds."""
    return typer.Option(
        flag,
        metavar="TIME",
        help=f"{text} {default_note(default)}",
        parser=_time_between(least, most),
        show_default=False,
    )


def _time_between(least: float, most: float) -> Callable[[str | float], float]:
    def parse(value: str | float) -> float:
        seconds = parse_duration(value).total_seconds()
        if not least <= seconds <= most:
            raise typer.BadParameter(
                f"{value!r:.80} must be a time from {seconds_text(least)} to {seconds_text(most)}"
            )
        return seconds

    return parse


def parse_duration(value: str | float, *, unit: str = "s") -> timedelta:
    """The time that was given to an option; a bare number counts units."""
    try:
        return duration(value, unit=unit)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r:.80}: {error}") from error


def file_option(*flags: str, text: str, metavar: str = "FILE", group: str | None = None) -> Any:  # noqa: ANN401 - the same
    """An option for files or folders; the command itself reports what can't be read."""
    return typer.Option(
        *flags,
        metavar=metavar,
        help=text,
        readable=False,
        show_default=False,
        rich_help_panel=group,
    )


def manifests_option(*flags: str, text: str) -> Any:  # noqa: ANN401 - the same
    """An option for manifests, which can be repeated; `accelbind.manifests` reads them."""
    where = "A file, a folder (without its subfolders) or - for stdin; repeat it for more."
    return file_option(*flags, text=f"{text} {where}")


MAPPINGS: Final = "Folder of mappings as YAML."
Mappings = Annotated[Path | None, file_option("--mappings", text=MAPPINGS, metavar="DIR")]
Kubeconfig = Annotated[
    Path | None,
    file_option(
        "--kubeconfig",
        text=f"How to reach the API server. {default_note(FOUND_KUBECONFIG)}",
    ),
]
Domains = Annotated[
    list[str] | None,
    typer.Option(
        "--domain",
        metavar="DOMAIN",
        help="Domain of the resources, as the webhook's --domain; repeat it for more."
        f" {default_note('fpga.intel.com')}",
        show_default=False,
    ),
]


AcceleratorDomains = Annotated[
    list[str] | None,
    typer.Option(
        "--accelerator-domain",
        metavar="DOMAIN",
        help="Domain of names of Accelerators, as the webhook's --accelerator-domain; repeat it"
        f" for more. {default_note('accelbind.dev')}",
        show_default=False,
    ),
]
ResourceDomains = Annotated[
    list[str] | None,
    typer.Option(
        "--resource-domain",
        metavar="DOMAIN",
        help="Domain that device types may have resources in, as the plugin's --resource-domain;"
        f" repeat it for more. {default_note(DEVICE_DOMAIN)}",
        show_default=False,
    ),
]
Guard = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="RESOURCE",
        help="As the webhook's, for pods of guarded namespaces; repeat it for more.",
        show_default=False,
    ),
]


def namespace_option(text: str, default: str) -> Any:  # noqa: ANN401 - the same
    """`--namespace` or `-n`."""
    return typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help=f"{text} {default_note(default)}",
        parser=_namespace,
        show_default=False,
    )


def _namespace(value: str) -> str:
    if not _NAMESPACE.fullmatch(value):
        raise typer.BadParameter(
            f"{value!r:.80} is not the name of a namespace: up to 63 lowercase letters, digits"
            " and '-', such as team-a"
        )
    return value


SharedNamespace = Annotated[
    str,
    typer.Option(
        "--shared-namespace",
        metavar="NAME",
        help="As the webhook's.",
        parser=lambda value: value and _namespace(value),
        show_default=False,
    ),
]


def find_kubeconfig(given: Path | None) -> Path | None:
    """The file that was given, or ~/.kube/config if `KUBECONFIG` is not set.

    None leaves it to `KUBECONFIG`, or to a pod's service account.
    """
    usual = Path.home() / ".kube" / "config"
    return given or (usual if "KUBECONFIG" not in os.environ and usual.is_file() else None)
