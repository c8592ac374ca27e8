"""Scripts of the `scripted` adapter: what fits, and what is said of mistakes."""

from __future__ import annotations

import pytest

from tavern_host.contracts.errors import Misconfigured
from tavern_llm.api.llm import ChatMessage, LlmUsage
from tavern_llm.script import Conditions, ScriptedCall, ScriptedReply, read_script


def said(*contents: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=content) for content in contents]


def problems(text: str) -> list[str]:
    with pytest.raises(Misconfigured) as caught:
        read_script(text, "replies.yaml")
    found: list[str] = caught.value.info.details["problems"]  # type: ignore[assignment]
    return found


def test_a_script_is_read_with_all_that_it_says() -> None:
    replies = read_script(
        "- when: {contains: [tavern, ale], last_contains: now}\n  reply: Here you are.\n  finish_reason: length\n"
        "  times: 2\n- reply: |\n    Anything\n    else?\n"
        "- reasoning: Hm.\n  usage: {prompt_tokens: 7, cached_tokens: 3}\n  tool_calls:\n"
        "  - {name: look, arguments: {at: [sky, 1, 2.5, true, null, 2020-01-01]}, id: c1}\n"
        "  - {name: broken, arguments: '{\"at\": '}\n  - {name: bare}\n",
        "replies.yaml",
    )
    when = Conditions(contains=["tavern", "ale"], last_contains=["now"])
    look = ScriptedCall(name="look", arguments='{"at": ["sky", 1, 2.5, true, null, "2020-01-01"]}', id="c1")
    calls = [look, ScriptedCall(name="broken", arguments='{"at": '), ScriptedCall(name="bare")]
    assert replies == (
        ScriptedReply(when=when, reply="Here you are.", finish_reason="length", times=2),
        ScriptedReply(reply="Anything\nelse?\n"),
        ScriptedReply(reasoning="Hm.", usage=LlmUsage(prompt_tokens=7, cached_tokens=3), tool_calls=calls),
    )


def test_the_results_that_came_last_are_a_condition() -> None:
    results = [ChatMessage(role="tool", content=text, tool_call_id="c") for text in ("a sword", "a shield")]
    both = Conditions(tool_contains=["sword", "shield"], last_role=["tool"])
    assert both.hold([*said("take both"), *results])
    assert not both.hold([*said("take both"), results[0]])
    assert not both.hold([*results, *said("well?")])
    assert not both.hold([])
    assert not Conditions(tool_contains=["sword"]).hold([*results, *said("a sword")])


def test_contains_looks_through_all_messages() -> None:
    reply = Conditions(contains=["sword", "shield"], last_contains=["please"])
    assert reply.hold(said("a sword", "a shield, please"))
    assert not reply.hold(said("a sword", "a shield, please", "well?"))
    assert not reply.hold(said("a sword, please"))
    assert Conditions(contains=["(a+)+$"]).hold(said("is (a+)+$ bad?"))
    assert not Conditions(contains=["Ale"]).hold(said("ale")), "case counts"
    assert Conditions().hold([]) and not Conditions(last_contains=["x"]).hold([])


def test_every_mistake_is_told_with_its_line() -> None:
    calls = "- reply: x\n  tool_calls: x\n  usage: {tokens: 1}\n- tool_calls: [{arguments: [1]}, 5]\n"
    assert problems(calls) == [
        "replies.yaml:2: tool_calls: input should be a valid list",
        "replies.yaml:3: usage.tokens: unknown option (did you mean prompt_tokens or cached_tokens?)",
        "replies.yaml:4: tool_calls.0.arguments: must be keys and values, or a text",
        "replies.yaml:4: tool_calls.0.name: field required",
        "replies.yaml:4: tool_calls.1: must be keys and values",
    ]
    text = "- when: {contain: a}\n  reply: x\n- when: {contains: 5}\n  reply: x\n- reply: x\n  times: 0\n- when: {}\n"
    assert problems(text) == [
        "replies.yaml:1: when.contain: unknown option (did you mean contains?)",
        "replies.yaml:3: when.contains.0: input should be a valid string; write it in quotes",
        "replies.yaml:6: times: input should be greater than or equal to 1",
        "replies.yaml:7: the key 'reply' is missing",
    ]

    no_list = ["replies.yaml:1: expected a list of replies: '- reply: …', each with an optional 'when'"]
    assert [problems(text) for text in ("", "reply: x", "[]", "hello")] == [no_list] * 4
    assert problems("- hello\n") == ["replies.yaml:1: must be keys and values"]


def test_bad_yaml_is_told_with_its_line() -> None:
    twice = "replies.yaml:2: not valid YAML: the key 'reply' stands here twice, or is no text"
    assert problems("- reply: a\n  reply: b\n") == [twice]
    for text, line in (("- reply: a\n- reply: [b\n", 3), ("- when: " + "[" * 10_000, 1)):
        (problem,) = problems(text)
        assert problem.startswith(f"replies.yaml:{line}: not valid YAML: ")
    bomb = "- &a {reply: x}\n" + "".join(f"- &b{i} [*a, *a, *a, *a, *a, *a, *a, *a]\n" for i in range(50))
    assert len(problems(bomb)) == 50
    grown = "".join(f"      b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]\n" for i in range(1, 30))
    (problem,) = problems(f"- tool_calls:\n  - name: x\n    arguments:\n      b0: &b0 [1]\n{grown}")
    assert problem.endswith(": not valid YAML: too many values, or nested too deeply")
