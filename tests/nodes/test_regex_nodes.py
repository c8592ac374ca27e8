"""`ApplyRegex`: rules change a text, in order, and never without end."""

from __future__ import annotations

from typing import Any

from node_bench import Nodes, check_refusals


def rule(pattern: str, replacement: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "pattern": pattern, "replacement": replacement, **more}


async def applied(nodes: Nodes, text: str, *inline: dict[str, Any], loaded: Any = None) -> str:
    outputs = await nodes.run("ApplyRegex", {"inputText": text, "inlineRegexRules": list(inline), "regexRules": loaded})
    result: str = outputs["outputText"]
    return result


async def test_rules_are_applied_one_after_another(nodes: Nodes) -> None:
    loaded = [rule("a", "1", "first"), rule("b", "2", "second"), rule("c", "3"), rule("d", "4")]
    found = [
        await applied(nodes, "a cat", rule("cat", "dog"), rule("(d)og", "$1uck")),
        *[await applied(nodes, "aaA", one) for one in (rule("a", "b"), rule("a", "b", flags=""), rule("/a/gi", "b"))],
        await applied(nodes, "a", rule("a", "b", enabled=False), rule("(", disabled=True)),
        await applied(nodes, "abcd", rule("a", "x", "first"), loaded=loaded),  # takes the place of one of its name
    ]
    assert found == ["a duck", "bbA", "baA", "bbb", "a", "x234"]
    assert await nodes.run("ApplyRegex", {"inputText": "a"}) == {"outputText": "a"}


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


RULES: list[tuple[Any, str]] = [
    ("a", "inlineRegexRules: expected a list of rules, not text"),
    (["a"], "inlineRegexRules[0]: expected an object with pattern and replacement, not text"),
    ([{"name": "x"}], "inlineRegexRules[0].pattern: expected text, not nothing"),
    ([rule("")], "inlineRegexRules[0].pattern: must not be empty"),
    ([rule("a", enabled="no")], "inlineRegexRules[0].enabled: expected true or false, not text"),
    ([rule("a", trimStrings=[1])], "inlineRegexRules[0].trimStrings: expected a list of texts"),
    ([rule("(", name="open")], "the pattern '(' of the rule 'open' is wrong: a group is opened with ( and not closed"),
    ([rule("a", flags="q")], "the pattern 'a' of the rule is wrong: the flag 'q' is not known; "
        "there is d, g, i, m, s, u, v"),
    ([rule("a")] * 1001, "inlineRegexRules: 1,001 rules are too many; at most 1,000 are possible"),
]  # fmt: skip


async def test_a_wrong_rule_is_told_by_its_place_or_name(nodes: Nodes) -> None:
    rows = (("ApplyRegex", {"inputText": "a", "inlineRegexRules": rules}, {}, message) for rules, message in RULES)
    await check_refusals(nodes, rows)
