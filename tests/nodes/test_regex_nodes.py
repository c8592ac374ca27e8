"""`ApplyRegex`: rules change a text, in order, and never without end."""

from __future__ import annotations

from typing import Any

import pytest
from node_bench import Nodes

from tavern_host import InvalidInput


def rule(pattern: str, replacement: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "pattern": pattern, "replacement": replacement, **more}


async def applied(nodes: Nodes, text: str, *inline: dict[str, Any], loaded: Any = None) -> str:
    outputs = await nodes.run("ApplyRegex", {"inputText": text, "inlineRegexRules": list(inline), "regexRules": loaded})
    result: str = outputs["outputText"]
    return result


async def test_rules_are_applied_one_after_another(nodes: Nodes) -> None:
    assert await applied(nodes, "a cat", rule("cat", "dog"), rule("(d)og", "$1uck")) == "a duck"


async def test_a_rule_without_flags_replaces_every_match(nodes: Nodes) -> None:
    assert await applied(nodes, "aaA", rule("a", "b")) == "bbA"
    assert await applied(nodes, "aaA", rule("a", "b", flags="")) == "baA"
    assert await applied(nodes, "aaA", rule("/a/gi", "b")) == "bbb"


async def test_a_rule_that_is_not_enabled_is_left_out(nodes: Nodes) -> None:
    assert await applied(nodes, "a", rule("a", "b", enabled=False), rule("(", disabled=True)) == "a"


async def test_without_rules_the_text_stays(nodes: Nodes) -> None:
    assert await nodes.run("ApplyRegex", {"inputText": "a"}) == {"outputText": "a"}


async def test_a_rule_of_the_node_takes_the_place_of_a_loaded_one_of_its_name(nodes: Nodes) -> None:
    loaded = [rule("a", "1", "first"), rule("b", "2", "second"), rule("c", "3"), rule("d", "4")]
    assert await applied(nodes, "abcd", rule("a", "x", "first"), loaded=loaded) == "x234"


async def test_scripts_of_sillytavern_are_rules(nodes: Nodes) -> None:
    script = {
        "scriptName": "thoughts",
        "findRegex": "/\\*(.+?)\\*/g",
        "replaceString": "<{{match}}|$1>",
        "trimStrings": ["*", "hm"],
        "placement": [2],
        "disabled": False,
    }
    assert await applied(nodes, "*hm yes* a *no*", script) == "< yes| yes> a <no|no>"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("a", "ApplyRegex: inlineRegexRules: expected a list of rules, not text"),
        (["a"], "ApplyRegex: inlineRegexRules[0]: expected an object with pattern and replacement, not text"),
        ([{"name": "x"}], "ApplyRegex: inlineRegexRules[0].pattern: expected text, not nothing"),
        ([rule("")], "ApplyRegex: inlineRegexRules[0].pattern: must not be empty"),
        ([rule("a", enabled="no")], "ApplyRegex: inlineRegexRules[0].enabled: expected true or false, not text"),
        ([rule("a", trimStrings=[1])], "ApplyRegex: inlineRegexRules[0].trimStrings: expected a list of texts"),
        (
            [rule("(", name="open")],
            "ApplyRegex: the pattern '(' of the rule 'open' is wrong: a group is opened with ( and not closed",
        ),
        ([rule("a", flags="q")], "ApplyRegex: the pattern 'a' of the rule is wrong: the flag 'q' is not known; "
            "there is d, g, i, m, s, u, v"),
        ([rule("a")] * 1001, "ApplyRegex: inlineRegexRules: 1,001 rules are too many; at most 1,000 are possible"),
    ],
)  # fmt: skip
async def test_a_wrong_rule_is_told_by_its_place_or_name(nodes: Nodes, rules: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await nodes.run("ApplyRegex", {"inputText": "a", "inlineRegexRules": rules})
    assert caught.value.message == message
