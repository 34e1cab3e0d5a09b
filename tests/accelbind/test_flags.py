"""Commands that are made from settings."""

import signal
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from accelbind.flags import Given, load_settings, settings_command, with_settings
from services.process.settings import TIME, CommaSeparated, Flag, ProcessSettings, Seconds


class Sample(ProcessSettings):
    units: Annotated[int, Field(ge=1), Flag("N", "Cards", short="-u")] = 40
    """Number of units."""
    pause: Annotated[Seconds, Flag(TIME, "Cards")] = 5.0
    """Time between two rounds."""
    domain: Annotated[CommaSeparated, Flag("DOMAIN", "Cards")] = ("a.example",)
    """Domain that is ours."""
    quiet: Annotated[bool, Flag(group="Cards")] = True
    """Say nothing."""


@pytest.fixture(autouse=True)
def _keep_sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def called(command: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_flags_reach_their_fields_and_print_config_shows_them_and_runs_nothing() -> None:
    ran: list[Sample] = []
    command = settings_command(Sample, lambda each, _: ran.append(each))
    flags = ("--units", "7", "--pause", "1m", "--domain", "a,b", "--domain", "c", "--no-quiet")
    called(command, *flags)
    (settings,) = ran
    assert (settings.units, settings.pause, settings.quiet) == (7, 60.0, False)
    assert settings.domain == ("a", "b", "c")
    assert "pause: 1m" in called(command, "--print-config", *flags)
    assert ran == [settings]


def test_a_process_that_is_asked_to_end_while_it_starts_ends() -> None:
    """As the first process of a container, which ignores SIGTERM unless it handles it."""

    def run(settings: Sample, _: typer.Context) -> None:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail(f"it has gone on with {settings}")

    assert called(settings_command(Sample, run)) == ""


def test_a_command_takes_some_settings_of_a_process() -> None:
    found: list[Any] = []

    @with_settings(Sample, "units", "domain", defaults={"units": "all of them"})
    def look(file: Annotated[str, typer.Argument()], *, given: Given) -> None:
        """Look."""
        found.append((file, given))

    shown = " ".join(called(look, "--help").split())
    assert "Number of units. [default: all of them]" in shown
    assert "--pause" not in shown
    called(look, "f", "--units", "7")
    assert found[0][0] == "f"
    assert found[0][1]["units"] == "7"
    assert load_settings(Sample, found[0][1]).domain == ("a.example",)
