"""What is nested too deep, and what stands beside it."""

import json

import msgspec
import pytest

from services.process.nesting import DEEPEST, decode, pruned

ANY = msgspec.json.Decoder()


def nested(levels: int, inside: str = "") -> str:
    return "[" * levels + inside + "]" * levels


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '[1, "a", {"b": [true, null]}]',
        nested(DEEPEST - 1, "1"),
        '"' + "[" * 9000 + '"',
        r'{"a\"[[": "\\", "b": "]}"}',
        '"unfinished [',
    ],
)
def test_what_is_not_deep_stays_as_it_is(text: str) -> None:
    assert pruned(text.encode()) == text.encode()


def test_what_is_deep_is_null_and_what_stands_around_it_stays() -> None:
    deep = {"a": nested(9000), "c": nested(9000, '"]"')}
    text = '{"a": 1, "b": "]}\\"", "c": 2, "e": 3}'
    for name, digit in (("a", 1), ("c", 2)):
        text = text.replace(f'"{name}": {digit}', f'"{name}": {deep[name]}')
    kept = json.loads(pruned(text.encode()))
    assert (kept["b"], kept["e"]) == (']}"', 3)
    levels = 1
    inner = kept["a"]
    while inner is not None:
        (inner,) = inner
        levels += 1
    assert levels == DEEPEST - 1


@pytest.mark.parametrize("text", ["[" * 9000, "]" * 9000, "[" * 9000 + "}" * 9000])
def test_what_is_no_json_stays_none(text: str) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode(ANY, text.encode())


def test_a_decoder_reads_beside_what_is_deep() -> None:
    assert decode(ANY, f'{{"a": 1, "b": {nested(9000)}}}'.encode())["a"] == 1


def test_what_is_too_long_to_look_through_is_refused() -> None:
    text = nested(50_000).encode()  # Python 3.13 follows 5 000 levels
    assert pruned(text, most=100_000)
    with pytest.raises(ValueError, match="nested too deep, and too long"):
        decode(ANY, text, most=99_999)
