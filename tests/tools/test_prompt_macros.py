"""Expanding `{{{macros}}}`: what is filled in, what is left alone, and where it ends."""

from __future__ import annotations

import pytest

from tavern_host.contracts.errors import Misconfigured
from tavern_tools.protocols.expansion import MAX_CHARS, Expander


def expander(texts: dict[str, str]) -> Expander:
    async def resolve(name: str) -> str | None:
        asked.append(name)
        return texts.get(name)

    asked: list[str] = []
    made = Expander(resolve)
    made.asked = asked  # type: ignore[attr-defined]
    return made


async def test_macros_are_filled_in_wherever_a_value_holds_text() -> None:
    value = {"a": "x {{{m}}} y{{{ m }}}", "list": ["{{{m}}}", 1, None, {"{{{m}}}": True}]}
    assert await expander({"m": "M"}).value(value) == {"a": "x M yM", "list": ["M", 1, None, {"{{{m}}}": True}]}  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["{{m}}", "{{{}}}", "{{{m}}", "{{{a{b}}}", "{{{" + "m" * 201 + "}}}", ""])
async def test_what_is_no_macro_is_left_alone(text: str) -> None:
    assert await expander({"m": "M"}).text(text) == text


async def test_a_macro_that_nobody_fills_in_is_left_as_it_is() -> None:
    assert await expander({}).text("{{{ who }}}?") == "{{{ who }}}?"


async def test_each_macro_is_asked_for_once() -> None:
    made = expander({"m": "M"})
    assert await made.text("{{{m}}}{{{m}}}") + await made.text("{{{m}}}") == "MMM"
    assert made.asked == ["m"]  # type: ignore[attr-defined]


async def test_macros_may_hold_macros_four_deep() -> None:
    texts = {"a": "a{{{b}}}", "b": "b{{{c}}}", "c": "c{{{d}}}", "d": "d{{{e}}}", "e": "e"}
    made = expander(texts)
    assert await made.text("{{{a}}}") == "abcd{{{e}}}"
    assert made.warnings == ["macros are nested more than 4 deep at 'e'; left as it is"]


async def test_a_macro_that_contains_itself_ends() -> None:
    made = expander({"a": "1{{{b}}}", "b": "2{{{a}}}"})
    assert await made.text("{{{a}}} {{{a}}}") == "12{{{a}}} 12{{{a}}}"
    assert made.warnings == ["the macro 'a' contains itself (a → b → a); left as it is"]


async def test_macros_cannot_grow_without_measure() -> None:
    texts = {"a": "{{{b}}}" * 100, "b": "{{{c}}}" * 100, "c": "{{{d}}}" * 100, "d": "d" * 100}
    with pytest.raises(Misconfigured, match=f"more than {MAX_CHARS:,} characters"):
        await expander(texts).text("{{{a}}}")


async def test_many_braces_take_linear_time() -> None:
    text = "{" * 400_000 + "{{{" * 100_000
    assert await expander({}).text(text) == text
