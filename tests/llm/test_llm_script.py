"""Scripts of the `scripted` adapter: what fits, and what is said of mistakes."""

from __future__ import annotations

import pytest

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import ChatMessage, LlmUsage
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
        "  times: 2\n- reply: |\n    Anything\n    else?\n",
        "replies.yaml",
    )
    assert replies == (
        ScriptedReply(
            when=Conditions(contains=["tavern", "ale"], last_contains=["now"]),
            reply="Here you are.",
            finish_reason="length",
            times=2,
        ),
        ScriptedReply(reply="Anything\nelse?\n"),
    )


def test_calls_reasoning_and_usage_are_played() -> None:
    (reply,) = read_script(
        "- reasoning: Hm.\n  usage: {prompt_tokens: 7, cached_tokens: 3}\n  tool_calls:\n"
        "  - {name: look, arguments: {at: [sky, 1, 2.5, true, null, 2020-01-01]}, id: c1}\n"
        "  - {name: broken, arguments: '{\"at\": '}\n  - {name: bare}\n",
        "replies.yaml",
    )
    assert (reply.reply, reply.reasoning) == ("", "Hm.")
    assert reply.usage == LlmUsage(prompt_tokens=7, cached_tokens=3)
    assert reply.tool_calls == [
        ScriptedCall(name="look", arguments='{"at": ["sky", 1, 2.5, true, null, "2020-01-01"]}', id="c1"),
        ScriptedCall(name="broken", arguments='{"at": '),
        ScriptedCall(name="bare"),
    ]


def test_the_results_that_came_last_are_a_condition() -> None:
    results = [ChatMessage(role="tool", content=text, tool_call_id="c") for text in ("a sword", "a shield")]
    both = Conditions(tool_contains=["sword", "shield"], last_role=["tool"])
    assert both.hold([*said("take both"), *results])
    assert not both.hold([*said("take both"), results[0]])
    assert not both.hold([*results, *said("well?")])
    assert not both.hold([])
    assert not Conditions(tool_contains=["sword"]).hold([*results, *said("a sword")])


def test_contains_looks_through_all_messages_and_last_contains_at_the_last() -> None:
    reply = Conditions(contains=["sword", "shield"], last_contains=["please"])
    assert reply.hold(said("a sword", "a shield, please"))
    assert not reply.hold(said("a sword", "a shield, please", "well?"))
    assert not reply.hold(said("a sword, please"))


def test_matching_is_by_substring_and_tells_case_apart() -> None:
    assert Conditions(contains=["(a+)+$"]).hold(said("is (a+)+$ bad?"))
    assert not Conditions(contains=["Ale"]).hold(said("ale"))


def test_a_reply_without_conditions_fits_even_an_empty_conversation() -> None:
    assert Conditions().hold([])
    assert not Conditions(last_contains=["x"]).hold([])


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


@pytest.mark.parametrize("text", ["", "reply: x", "[]", "hello"])
def test_something_other_than_a_list_of_replies_is_refused(text: str) -> None:
    assert problems(text) == ["replies.yaml:1: expected a list of replies: '- reply: …', each with an optional 'when'"]


def test_a_reply_that_is_no_mapping_and_a_key_given_twice_are_refused() -> None:
    assert problems("- hello\n") == ["replies.yaml:1: must be keys and values"]
    (twice,) = problems("- reply: a\n  reply: b\n")
    assert twice == "replies.yaml:2: not valid YAML: the key 'reply' stands here twice, or is no text"


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
    assert problem.endswith(": not valid YAML: too many values, or nested too deeply")


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    (problem,) = problems("- when: " + "[" * 20_000)
    assert problem.startswith("replies.yaml:1: not valid YAML: ")
