"""Scripts of the `scripted` adapter: what fits, and what is said of mistakes."""

from __future__ import annotations

import pytest

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import ChatMessage, LlmUsage
from tavern_llm.script import ScriptedCall, ScriptedReply, read_script


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
        "  times: 2\n- reply: |\n    Anything\n    else?\n",
        "replies.yaml",
    )
    assert replies == (
        ScriptedReply("Here you are.", 1, ("tavern", "ale"), ("now",), "length", 2),
        ScriptedReply("Anything\nelse?\n", 5),
    )


def test_calls_reasoning_and_usage_are_played() -> None:
    (reply,) = read_script(
        "- reasoning: Hm.\n  usage: {prompt_tokens: 7, cached_tokens: 3}\n  tool_calls:\n"
        "  - {name: look, arguments: {at: [sky, 1, 2.5, true, null, 2020-01-01]}, id: c1}\n"
        "  - {name: broken, arguments: '{\"at\": '}\n  - {name: bare}\n",
        "replies.yaml",
    )
    assert (reply.text, reply.finish_reason, reply.reasoning) == ("", "tool_calls", "Hm.")
    assert reply.usage == LlmUsage(prompt_tokens=7, cached_tokens=3)
    assert reply.tool_calls == (
        ScriptedCall("look", '{"at": ["sky", 1, 2.5, true, null, "2020-01-01"]}', "c1"),
        ScriptedCall("broken", '{"at": '),
        ScriptedCall("bare"),
    )


def test_the_results_that_came_last_are_a_condition() -> None:
    results = [ChatMessage(role="tool", content=text, tool_call_id="c") for text in ("a sword", "a shield")]
    both = ScriptedReply("", 1, tool_contains=("sword", "shield"), last_role=("tool",))
    assert both.fits([*said("take both"), *results])
    assert not both.fits([*said("take both"), results[0]])
    assert not both.fits([*results, *said("well?")])
    assert not both.fits([])
    assert not ScriptedReply("", 1, tool_contains=("sword",)).fits([*results, *said("a sword")])


def test_contains_looks_through_all_messages_and_last_contains_at_the_last() -> None:
    reply = ScriptedReply("", 1, contains=("sword", "shield"), last_contains=("please",))
    assert reply.fits(said("a sword", "a shield, please"))
    assert not reply.fits(said("a sword", "a shield, please", "well?"))
    assert not reply.fits(said("a sword, please"))


def test_matching_is_by_substring_and_tells_case_apart() -> None:
    assert ScriptedReply("", 1, contains=("(a+)+$",)).fits(said("is (a+)+$ bad?"))
    assert not ScriptedReply("", 1, contains=("Ale",)).fits(said("ale"))


def test_a_reply_without_conditions_fits_even_an_empty_conversation() -> None:
    assert ScriptedReply("", 1).fits([])
    assert not ScriptedReply("", 1, last_contains=("x",)).fits([])


def test_every_mistake_is_told_with_its_line() -> None:
    calls = "- reply: x\n  tool_calls: []\n  usage: {tokens: 1}\n- tool_calls: [{arguments: [1]}, 5]\n"
    assert problems(calls) == [
        "replies.yaml:2: 'tool_calls' must be a list: '- {name: …, arguments: {…}}'",
        "replies.yaml:3: 'usage' has no key 'tokens'; there is prompt_tokens, completion_tokens, cached_tokens, "
        "reasoning_tokens",
        "replies.yaml:4: 'arguments' must be keys and values, or a text",
        "replies.yaml:4: a call must be keys and values: name, arguments, id",
        "replies.yaml:4: the call's 'name' is missing",
    ]
    text = "- when: {contain: a}\n  reply: x\n- when: {contains: 5}\n  reply: x\n- reply: x\n  times: 0\n- when: {}\n"
    assert problems(text) == [
        "replies.yaml:1: 'when' has no key 'contain'; there is contains, last_contains, tool_contains, last_role",
        "replies.yaml:3: 'contains' must be a text; write it in quotes: \"5\"",
        "replies.yaml:6: 'times' must be a whole number, 1 or more",
        "replies.yaml:7: the key 'reply' is missing",
    ]


@pytest.mark.parametrize("text", ["", "reply: x", "[]", "hello"])
def test_something_other_than_a_list_of_replies_is_refused(text: str) -> None:
    assert problems(text) == ["replies.yaml:1: expected a list of replies: '- reply: …', each with an optional 'when'"]


def test_a_reply_that_is_no_mapping_and_a_key_given_twice_are_refused() -> None:
    assert problems("- hello\n- reply: a\n  reply: b\n") == [
        "replies.yaml:1: a reply must be keys and values: when, reply, tool_calls, reasoning, usage, finish_reason, "
        "times",
        "replies.yaml:3: the key 'reply' stands here twice",
    ]


def test_bad_yaml_is_told_with_its_line() -> None:
    (problem,) = problems("- reply: a\n- reply: [b\n")
    assert problem.startswith("replies.yaml:3: not valid YAML: ")


def test_aliases_cannot_make_a_script_grow() -> None:
    bomb = "- &a {reply: x}\n" + "".join(f"- &b{i} [*a, *a, *a, *a, *a, *a, *a, *a]\n" for i in range(50))
    assert len(problems(bomb)) == 50
    grown = "".join(f"    b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]\n" for i in range(1, 30))
    (problem,) = problems(
        f"- tool_calls:\n  - name: x\n    arguments:\n      b0: &b0 [1]\n{grown.replace('    b', '      b')}"
    )
    assert problem == "replies.yaml:4: 'arguments' cannot be JSON: more than 10000 values"


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    (problem,) = problems("- when: " + "[" * 20_000)
    assert problem.startswith("replies.yaml:1: not valid YAML: ")
