"""Which mode counts."""

import asyncio

import pytest

from plugin.node_mode import ANNOTATION, ModeChoice, NodeMode, choose
from services.devices.model import PluginMode

pytestmark = pytest.mark.anyio

AF, REGION, DEVEL = PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL
FLAG = ModeChoice(AF, "flag")


@pytest.mark.parametrize("configured", list(PluginMode))
@pytest.mark.parametrize("annotated", [AF, REGION, DEVEL])
def test_the_annotation_overrides_whatever_the_flag_says(
    configured: PluginMode, annotated: PluginMode
) -> None:
    annotations = {ANNOTATION: f" {annotated.value}\n", "other": "x"}
    assert choose(FLAG, configured, annotations) == ModeChoice(annotated, "annotation")


def test_without_the_annotation_the_flag_counts() -> None:
    assert choose(ModeChoice(REGION, "annotation"), DEVEL, {"other": "x"}) == ModeChoice(
        DEVEL, "flag"
    )


@pytest.mark.parametrize("value", ["", "regions", "AF", "units", "bdf", "af,region", "\0" * 999])
def test_a_value_that_is_no_mode_keeps_the_one_before_and_says_so(value: str) -> None:
    chosen = choose(ModeChoice(REGION, "annotation"), AF, {ANNOTATION: value})
    assert (chosen.mode, chosen.source) == (REGION, "annotation")
    assert "none of af, region, regiondevel: it stays in mode region" in chosen.error
    assert len(chosen.error) < 300
    assert chosen.error.isprintable()


async def test_changes_are_told_and_waited_for() -> None:
    told: list[tuple[ModeChoice, ModeChoice]] = []
    mode = NodeMode(AF, on_change=lambda before, now: told.append((before, now)))
    mode.update({})
    waiting = asyncio.create_task(mode.differs(AF))
    mode.update({ANNOTATION: "nonsense"})
    mode.update({ANNOTATION: "nonsense"})
    assert [now.error for _, now in told] == [mode.choice.error]
    assert mode.choice.mode is AF
    mode.update({ANNOTATION: "region"})
    async with asyncio.timeout(60):
        await waiting
    mode.update({})
    assert [(before.mode, now.mode) for before, now in told[1:]] == [(AF, REGION), (REGION, AF)]


async def test_what_is_the_case_at_the_start_is_no_change_unless_it_is_wrong() -> None:
    told: list[str] = []
    for value in ("region", "nonsense"):
        NodeMode(AF, on_change=lambda _, now: told.append(now.error)).update({ANNOTATION: value})
    assert len(told) == 1
    assert "nonsense" in told[0]


@pytest.mark.parametrize(("last", "counts"), [(REGION, REGION), (PluginMode.BDF, AF), (None, AF)])
async def test_until_the_annotation_is_told_the_mode_counts_that_was_served_last(
    last: PluginMode | None, counts: PluginMode, capsys: pytest.CaptureFixture[str]
) -> None:
    mode = NodeMode(AF)
    mode.resume(last)
    assert mode.choice.mode is counts
    assert "hasn't returned this node's annotations yet" in capsys.readouterr().out
    mode.update({})
    assert mode.choice == FLAG
    mode.resume(REGION)
    assert mode.choice == FLAG
