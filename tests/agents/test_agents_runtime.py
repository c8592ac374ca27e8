"""Agents in a running host: deliberate, act, observe, reply."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from helpers.tavern_project import MODELS, Tavern, action, deliberation
from helpers.wire_server import WireServer

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.workflows import Workflow

OBSERVED = "<OBSERVATION>\n<tool_id>shout</tool_id>\nTool shout executed successfully. Output: "


async def test_an_agent_calls_a_tool_and_replies_with_what_it_observed(tavern: Tavern) -> None:
    call = f"I shall shout.\n{action('shout', text='last orders')}"
    tavern.replies(
        ({"last_contains": "Tool shout executed successfully"}, "I did shout LAST ORDERS."),
        ({"last_contains": "last orders"}, call),
    )
    reply = await tavern.run("Tell them: last orders!")
    assert (reply.outcome, reply.text, reply.steps, reply.error) == ("reply", "I did shout LAST ORDERS.", 2, None)
    (result,) = reply.tool_results
    assert (result.tool_id, result.status) == ("shout", "done")
    assert "LAST ORDERS" in json.dumps(result.structured)
    assert [message.role for message in reply.history] == ["user", "assistant", "user", "assistant"]
    assert reply.history[1].content == call
    assert reply.history[2].content.startswith(OBSERVED)
    assert "LAST ORDERS" in reply.history[2].content
    assert reply.history[3].content == "I did shout LAST ORDERS."


async def test_each_step_is_told_while_it_happens(tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": "executed successfully"}, "Done."),
        ({}, f"I shall shout.\n{action('shout', text='ale')}"),
    )
    reply = await tavern.run("Shout ale.")
    steps = [(trace["step"], trace["kind"]) for trace in tavern.traces]
    assert steps == [
        (0, "started"),
        (1, "thinking"),
        (1, "thought"),
        (1, "tool_call"),
        (1, "tool_running"),
        (1, "observation"),
        (2, "thinking"),
        (2, "reply"),
    ]
    assert {trace["agentRunId"] for trace in tavern.traces} == {reply.agent_run_id}
    assert {trace["profileId"] for trace in tavern.traces} == {"keeper"}
    assert tavern.said("thought", "reply") == ["I shall shout.", "Done."]
    call = {"toolId": "shout", "place": 0, "index": 1, "arguments": {"text": "ale"}}
    assert tavern.traces[3]["data"] == {**call, "runId": tavern.traces[2]["data"]["runId"]}
    assert tavern.said("observation")[0].startswith("Tool shout executed successfully. Output: ")


async def test_a_reply_without_calls_ends_at_once(tavern: Tavern) -> None:
    tavern.replies(({}, "  Welcome!  "))
    reply = await tavern.run("Hello.")
    assert (reply.outcome, reply.text, reply.steps, reply.tool_results) == ("reply", "Welcome!", 1, [])


async def test_what_was_said_before_is_part_of_the_conversation(tavern: Tavern) -> None:
    tavern.replies(({"contains": ["I am Ada", "Who am I?"]}, "You are Ada."))
    before = [ChatMessage(role="user", content="I am Ada"), ChatMessage(role="assistant", content="Hello, Ada.")]
    reply = await tavern.run("Who am I?", history=before)
    assert reply.text == "You are Ada."
    assert [message.content for message in reply.history] == ["I am Ada", "Hello, Ada.", "Who am I?", "You are Ada."]


def acme(tmp_path: Path, code: str, manifest: str) -> Path:
    """Write the plugin `acme` and return its folder."""
    folder = tmp_path / "acme"
    folder.mkdir()
    about = f"name: acme\ndisplayName: Acme\nversion: 1.0.0\n{manifest}\n"
    (folder / "plugin.yaml").write_text(about, encoding="utf-8")
    (folder / "__init__.py").write_text(code, encoding="utf-8")
    return folder


# --- prompts --------------------------------------------------------------------------------------


async def test_the_prompt_holds_the_documentation_of_the_agents_tools_and_of_no_others(tavern: Tavern) -> None:
    tavern.replies(
        ({"contains": "hush"}, "I know of hush."),
        ({"contains": ["You keep the bar.", "shout", "REQUEST_TOOL"]}, "I know of shout."),
    )
    assert (await tavern.run("What can you do?")).text == "I know of shout."


async def test_macros_in_what_people_and_tools_say_are_never_expanded(tavern: Tavern) -> None:
    macro = "{{{system:available_tools}}}"
    tavern.profile(tool_ids_inventory=["hush"])
    tavern.replies(
        ({"last_contains": ["Tool hush executed successfully", macro]}, f"Still {macro}."),
        ({"last_contains": f"Say {macro}"}, action("hush", text=macro)),
    )
    reply = await tavern.run(f"Say {macro}")
    assert (reply.text, reply.steps) == (f"Still {macro}.", 2)


async def test_a_macro_that_nobody_knows_is_left_and_warned_about_once(tavern: Tavern) -> None:
    tavern.write("workflows/think.json", deliberation("{{{acme:moon}}} {{{system:tiem}}} {{{system:available_tools}}}"))
    tavern.replies(
        ({"last_contains": "executed successfully"}, "Done."),
        ({"contains": "{{{acme:moon}}} {{{system:tiem}}} "}, action("shout", text="a")),
    )
    assert (await tavern.run("Hello.")).text == "Done."
    warnings = list(tavern.said("warning"))
    assert warnings == [
        "no plugin provides the macro 'acme:moon'; left as it is",
        "no plugin provides the macro 'system:tiem' (did you mean system:time?); left as it is",
    ]


async def test_a_macro_that_fails_costs_only_itself(tavern: Tavern, tmp_path: Path) -> None:
    code = """
from tavern_host import hookimpl
from tavern_host.contracts.macros import PromptMacroInfo

async def sun(request, context):
    return f"the sun, for {request.tool_ids} by {request.call.principal}"

async def moon(request, context):
    raise RuntimeError("clouds")

@hookimpl
def tavern_register_prompt_macros():
    return [PromptMacroInfo(name=f"acme:{n}", handler=f"{__name__}:{n}") for n in ("sun", "moon")]
"""
    folder = acme(tmp_path, code, "permissions: {hooks: ['hook:server:prompts:register-macros']}")
    tavern.write("workflows/think.json", deliberation("{{{acme:moon}}} {{{acme:sun}}}"))
    tavern.replies(({"contains": "{{{acme:moon}}} the sun, for ['shout'] by agent:keeper"}, "Sunny."))
    async with Host(project=tavern.root, settings=tavern.settings, plugins=[folder], trust=["acme"]) as host:
        reply = await tavern.run_in(host, "Weather?")
        await tavern.run_in(host, "And now?")
        (problem,) = host.plugin("acme").problems
    assert reply.text == "Sunny."
    assert "acme failed in the macro 'acme:moon': RuntimeError: clouds; left as it is" in tavern.said("warning")
    assert str(problem) == (
        "the macro 'acme:moon' failed: RuntimeError: clouds "
        "(mend it there, or keep it out with `tavern plugins disable acme`)"
    )


async def test_a_macro_that_two_plugins_provide_is_filled_in_by_neither_and_both_are_told(
    tavern: Tavern, tmp_path: Path
) -> None:
    code = """
from tavern_host import hookimpl
from tavern_host.contracts.macros import PromptMacroInfo

@hookimpl
def tavern_register_prompt_macros():
    return [PromptMacroInfo(name="system:available_tools", handler=f"{__name__}:x")]
"""
    folder = acme(tmp_path, code, "permissions: {hooks: ['hook:server:prompts:register-macros']}")
    tavern.replies(({"contains": "{{{system:available_tools}}}"}, "Nothing."))
    async with Host(project=tavern.root, settings=tavern.settings, plugins=[folder], trust=["acme"]) as host:
        assert (await tavern.run_in(host, "What is there?")).text == "Nothing."
        for name in ("acme", "tavern-tools"):
            (problem,) = host.plugin(name).problems
            assert str(problem) == (
                "the macro 'system:available_tools' is provided by acme and tavern-tools; none of them is used "
                f"(keep one alone, such as with `tavern plugins disable {name}`)"
            )


# --- tools ----------------------------------------------------------------------------------------


async def test_a_tool_outside_of_the_inventory_is_denied_and_observed(tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": "Tool hush failed. Error type: PermissionDenied."}, "I may not."),
        ({}, action("hush", text="LOUD")),
    )
    reply = await tavern.run("Hush!")
    assert reply.text == "I may not."
    assert [result.status for result in reply.tool_results] == ["error"]


async def test_wrong_arguments_are_observed_and_can_be_put_right(tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": "executed successfully"}, "At last."),
        ({"last_contains": "Error type: ParameterValidationError."}, action("shout", text="right")),
        ({}, action("shout", loud="wrong")),
    )
    reply = await tavern.run("Shout!")
    assert (reply.text, reply.steps) == ("At last.", 3)
    assert [result.status for result in reply.tool_results] == ["error", "done"]


async def test_text_that_only_looks_like_a_call_is_told_once(tavern: Tavern) -> None:
    broken = "<|[REQUEST_TOOL]|>\nshout it!\n<|[END_TOOL]|>"
    tavern.replies(
        ({"last_contains": "no call could be read from it"}, action("shout", text="a")),
        ({"last_contains": "executed successfully"}, "Done."),
        ({}, broken),
    )
    reply = await tavern.run("Shout!")
    assert (reply.outcome, reply.text, reply.steps) == ("reply", "Done.", 3)


async def test_long_output_is_cut_before_the_model_reads_it(tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": ["executed successfully", "characters left out"]}, "Too much."),
        ({}, action("shout", text="ale " * 10_000)),
    )
    reply = await tavern.run("Shout!")
    assert reply.text == "Too much."
    assert 16_000 < len(reply.history[2].content) < 16_200


# --- how it ends ----------------------------------------------------------------------------------


async def test_an_agent_that_never_replies_is_stopped_at_the_limit(tavern: Tavern) -> None:
    tavern.replies(({}, f"Again!\n{action('shout', text='a')}"))
    reply = await tavern.run("Go on.", max_steps=3)
    assert (reply.outcome, reply.steps, len(reply.tool_results)) == ("limit", 4, 3)
    assert (reply.text, reply.error) == ("Again!", "no final reply within 3 steps")
    assert tavern.said("limit") == ["Stopped: no final reply within 3 steps"]


async def test_a_failure_of_the_model_ends_the_run_with_its_message(tavern: Tavern) -> None:
    tavern.replies(({"contains": "never said"}, "x"))
    reply = await tavern.run("Hello.")
    assert reply.outcome == "error"
    assert reply.error is not None
    assert "replies.json: no reply fits; the last message was user: 'Hello.'" in reply.error
    assert tavern.said("error") == [reply.error]
    assert [message.content for message in reply.history] == ["Hello."]


async def test_a_workflow_that_does_not_exist(tavern: Tavern) -> None:
    tavern.profile(core_deliberation_workflow_id="workflows/thnik.json")
    with pytest.raises(NotFound) as caught:
        await tavern.run("Hello.")
    expected = (
        "the agent 'keeper' (core_deliberation_workflow_id: 'workflows/thnik.json'): there is no workflow 'thnik'"
    )
    assert caught.value.message.startswith(expected)
    assert tavern.traces == []


async def test_a_workflow_that_cannot_be_run_ends_the_run_with_every_problem(tavern: Tavern) -> None:
    tavern.write("workflows/think.json", json.dumps(deliberation()).replace("core:LlmApiRequest", "core:Nonsense"))
    reply = await tavern.run("Hello.")
    assert reply.outcome == "error"
    assert reply.error is not None
    assert "core:Nonsense" in reply.error


async def test_cancelling_stops_the_deliberation_and_closes_the_connection(tavern: Tavern) -> None:
    server = WireServer(pieces=[b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", None])
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    tavern.settings = {MODELS: {"m": {"adapter": "openai", "base_url": server.base_url, "model": "tiny"}}}
    async with listening, Host(project=tavern.root, settings=tavern.settings) as host:
        task = asyncio.create_task(tavern.run_in(host, "Hello."))
        async with asyncio.timeout(60):
            await server.asked.wait()
            task.cancel()
            await server.closed.wait()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await host.services.get(EXECUTION_ENGINE).queue()).running == []
    assert tavern.said("interrupted") == ["Stopped on request"]


async def test_an_agent_within_a_run_does_not_wait_for_that_run_to_end(tavern: Tavern, tmp_path: Path) -> None:
    code = """
from tavern_host import AGENT_RUNTIME, NodeContext, hookimpl, node
from tavern_host.contracts.agents import AgentRequest

@node(type="AskKeeper", namespace="acme")
async def ask_keeper(context: NodeContext) -> str:
    request = AgentRequest(profile_id="keeper", message="Hello.")
    return (await context.plugin.services.get(AGENT_RUNTIME).run(request, call=context.call)).text

@hookimpl
def tavern_register_nodes():
    return [ask_keeper.__tavern_node__.definition]
"""
    hooks = "permissions: {hooks: ['hook:server:nodes:register'], services: {use: ['agentRuntime:run']}}"
    folder = acme(tmp_path, code, hooks)
    tavern.replies(({}, "Welcome!"))
    document = {"nodes": [{"id": "ask", "type": "acme:AskKeeper"}], "edges": []}
    settings = {"extensions.tavern-engine.maxConcurrentRuns": 1}
    async with Host(project=tavern.root, settings=settings, plugins=[folder], trust=["acme"]) as host:
        request = RunRequest(workflow=Workflow.model_validate(document))
        async with asyncio.timeout(60):
            run = await host.services.get(EXECUTION_ENGINE).run(request)
    assert run.nodes["ask"].output == {"result": "Welcome!"}


# --- a real server --------------------------------------------------------------------------------
