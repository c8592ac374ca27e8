"""Questions of agents outlive the host that they were asked in, and are answered over the socket and at a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.screen import on_screen
from helpers.stub_llm import said
from helpers.survival import killed
from helpers.tavern_project import Tavern, action

from tavern_host.testing.http import served
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import agent_bench
from tests.agents.survivor import ASK, QUESTIONS, ask_people, prepare_questions

ANSWERS: dict[str, Any] = {"text": "Ada", "choice": "ale", "form": {"city": "Ghent"}, "drawn": "slowly"}


async def test_questions_survive_a_kill_and_are_answered_over_the_socket(tmp_path: Path) -> None:
    (runs,) = await killed(ask_people, tmp_path, lines=1)
    asked: dict[str, list[LlmRequest]] = {name: [] for name in QUESTIONS}

    def say(request: LlmRequest) -> LlmResponse:
        [name] = [one.content for one in request.messages if one.content in QUESTIONS]
        asked[name].append(request)
        again = name == "drawn" and "{" not in request.messages[-1].content
        return said("", (ASK, QUESTIONS[name])) if again else said(f"I heard of {name}.")

    async with (
        agent_bench(tmp_path, prepare_questions, say, serving=True) as bench,
        served(bench.host) as web,
        await web.socket() as socket,
    ):
        late = await bench.ended(runs["late"])  # its time was over in between, or is so soon
        assert late.text == "I heard of late."
        assert "nobody answered the question" in asked["late"][0].messages[-1].content
        for name, answer in ANSWERS.items():
            standing = await bench.reached(await bench.runtime.get_run(runs[name]), lambda one: one.approvals)
            decision = {"taskId": standing.approvals[0], "decision": "approve"}
            wrong = {**decision, "arguments": {"answer": 5}}
            for payload, expected in (
                (wrong, "error"),
                ({**decision, "arguments": {"answer": answer}}, "APPROVAL_DECIDED"),
            ):
                await socket.send_json({"type": "APPROVAL_DECISION", "payload": payload})
                while (message := await socket.receive_json(timeout=60))["type"] not in ("error", "APPROVAL_DECIDED"):
                    pass
                assert message["type"] == expected, message
            assert message["payload"]["taskId"] == standing.approvals[0]
            reply = await bench.ended(runs[name])
            assert (reply.outcome, reply.text) == ("reply", f"I heard of {name}.")
            assert json.dumps({"answer": answer}) in asked[name][-1].messages[-1].content
            assert len(asked[name]) == (2 if name == "drawn" else 1)
        assert [str(task.status) for task in await bench.tools.tasks()].count("awaiting_approval") == 0


def test_a_person_at_a_terminal_is_asked_and_answers(tavern: Tavern, tmp_path: Path) -> None:
    picture = tmp_path / "title.txt"
    picture.write_text("a title")
    fields = {"city": {"type": "string", "title": "City"}, "copies": {"type": "integer"}}
    form = json.dumps({"properties": fields, "required": ["city"]})
    tavern.profile(tool_ids_inventory=[ASK])
    tavern.replies(
        ({"last_contains": "title.txt"}, "All is said."),
        ({"last_contains": '"copies": 3'}, action(ASK, question="Which file?", kind="file")),
        ({"last_contains": '"ale"'}, action(ASK, question="Where to?", schema=form)),
        ({"last_contains": "Ada"}, action(ASK, question="What drink?", choices='["tea", "ale"]')),
        ({"last_contains": "declined"}, "Then not."),
        ({"last_contains": "ask"}, action(ASK, question="Who are you?")),
    )
    typed = f"ask me\nAda\n7\n2\nGhent\n3\n{picture}\nask once more\n\n\n"
    code, screen, _ = on_screen("--project", tavern.root, "agent", "run", "keeper", typed=typed, columns=200)
    assert code == 0, screen.text
    for part in (
        *("keeper asks: Who are you?", "1. tea", "2. ale", 'not answered: the answer does not fit: "7"'),
        *("Where to?", "City (required): ", "copies: ", "Which file?", "All is said.", "Then not."),
    ):
        assert part in screen.text, screen.text
    [kept] = (tavern.root / "files" / "answers").rglob("title.txt")
    assert kept.read_text() == "a title"
