"""Hosts that are to be killed, and say what they have done until then: the runs of their agents once each is at its
stage, changes of conversations, or changes of a world."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Awaitable
from pathlib import Path

from helpers.stub_llm import Call, Said, said, written
from helpers.survival import say
from helpers.tavern_project import Tavern
from helpers.waiting import until

import tavern_demo
from tavern_agents.api.memory import MemoryChange
from tavern_llm.api.llm import ChatMessage, LlmRequest
from tavern_worlds.api.scenes import SCENE_MANAGER
from tests.agents.agent_bench import AgentBench, agent, agent_bench, tool
from tests.agents.calling_places import PLACES, asked
from tests.agents.calling_places import prepare as prepare_places

# --- agents at work -----------------------------------------------------------------------------------

STAGES = {
    "streaming": None,
    "acting": written("tam", ("mark", {"text": "acting", "seconds": "600"})),
    "repeatable": written("tam", ("look", {"text": "looking", "seconds": "1"})),
    "chain": written(
        "tam", ("mark", {"text": "first"}), ("mark", {"text": "second", "seconds": "600"}), ("mark", {"text": "third"})
    ),
    "sub": written("tam", ("agent:helper", {"message": "streaming"})),
    "approve": written("tam", ("pay", {"text": "paid"})),
    "refuse": written("tam", ("pay", {"text": "robbed"})),
}
"""What the model answers to the name of a stage at which a kill matters; nothing, for long, where it is None."""

ROOM = {"extensions.tavern-engine.maxConcurrentRuns": 24}
"""So many runs are in the middle of something at once."""

MARKS = {"acting", "looking", "second"}


def prepare(project: Tavern) -> None:
    """Write the agent's tools."""
    for name, more in {"mark": {}, "look": {"readOnly": True}, "pay": {"requiresApproval": True}}.items():
        project.write(f"tools/{name}.tool.json", tool(name, "told:Mark", **more))
    project.profile(tool_ids_inventory=["mark", "look", "pay", "agent:helper"])
    project.write("agents/helper.json", agent("helper", "pay"))


def answer(request: LlmRequest) -> Said | Awaitable[Said]:
    """Answer to the name of a stage."""
    answered = STAGES[request.messages[1].content]
    return asyncio.get_running_loop().create_future() if answered is None else answered


async def work(folder: Path) -> None:
    """Let agents work until each is at its stage, say so, and stay there."""
    async with agent_bench(folder, prepare, serving=True, settings=ROOM) as bench:
        model = bench.model(answer)
        runs = {stage: (await bench.start(stage, conversation_id=stage)).id for stage in STAGES}
        await bench.waiting(2)
        path = bench.project.root / "marks"
        await until(lambda: path.exists() and set(path.read_text().split()) >= MARKS)
        await until(lambda: len(model.asked) == len(STAGES) + 1)
        say(runs)
        await asyncio.Event().wait()


# --- agents that ask people ---------------------------------------------------------------------------

ASK = "system:request_user_interaction"
QUESTIONS = {
    "text": {"question": "Who?"},
    "choice": {"question": "Which?", "choices": ["tea", "ale"]},
    "form": {"question": "Where?", "schema": {"properties": {"city": {"type": "string"}}, "required": ["city"]}},
    "late": {"question": "Now?", "seconds": 2},
    "drawn": {"question": "How?"},
}
"""What the agent asks of whom the name of a question is said to; the last one in a loop that is drawn."""


def prepare_questions(project: Tavern) -> None:
    """Write the agents that ask."""
    sample = Path(tavern_demo.__file__).parent / "sample" / "workflows"
    shutil.copytree(sample, project.root / "workflows", dirs_exist_ok=True)
    project.profile(tool_ids_inventory=[ASK])
    drawn = "agents/deliberation-with-loop"
    project.write("agents/drawn.json", agent("drawn", ASK, core_deliberation_workflow_id=drawn))


async def ask_people(folder: Path) -> None:
    """Let agents ask, say their runs, and wait for ever."""

    def answer(request: LlmRequest) -> Said:
        [name] = [one.content for one in request.messages if one.content in QUESTIONS]
        return said("", (ASK, QUESTIONS[name]))

    async with agent_bench(folder, prepare_questions, serving=True, settings=ROOM) as bench:
        bench.model(answer)
        agents = {name: "drawn" if name == "drawn" else "keeper" for name in QUESTIONS}
        runs = {name: (await bench.start(name, agent=who, conversation_id=name)).id for name, who in agents.items()}
        for run_id in runs.values():
            await bench.reached(await bench.runtime.get_run(run_id), lambda one: one.approvals)
        say(runs)
        await asyncio.Event().wait()


# --- agents in the middle of calls, at every place ------------------------------------------------------


def at_every_place() -> dict[str, list[Call]]:
    """Return the calls of the agent of each place: the second call takes long."""
    return {place: [("mark", {"text": place}), ("mark", {"text": f"{place}2", "seconds": 600.0})] for place in PLACES}


def ask(request: LlmRequest) -> Said:
    """Ask for the calls of the place that is named."""
    place = next(message.content for message in request.messages if message.content in PLACES)
    return asked(place, *at_every_place()[place])


async def call_tools(folder: Path) -> None:
    """Let an agent at each place make its calls, say so, and stay in the middle of the second."""
    async with agent_bench(folder, prepare_places, serving=True, settings=ROOM) as bench:
        bench.model(ask)
        runs = {place: (await bench.start(place, agent=place)).id for place in PLACES}
        path, marks = bench.project.root / "marks", {f"{place}{more}" for place in PLACES for more in ("", "2")}
        await until(lambda: path.exists() and set(path.read_text().split()) >= marks)
        say(runs)
        await asyncio.Event().wait()


# --- conversations ------------------------------------------------------------------------------------


async def write(bench: AgentBench, history: str) -> None:
    """Append, edit, swipe and fork, let an agent remember the number, and say the head of the branch after each."""
    kept = bench.histories
    (last, *_) = await kept.append(history, [ChatMessage(role="user", content="0")])
    for number in itertools.count(1):
        text = f"{history} {number} " + "x" * 2000
        asked, answer = ChatMessage(role="user", content=text), ChatMessage(role="assistant", content=text)
        if number % 4 == 0:
            added = await kept.edit(history, last.id, text, head=last.id)
        elif number % 4 == 1:
            added = await kept.swipe(history, last.id, [answer, asked], head=last.id)
        else:
            added = await kept.append(history, [asked, answer], parent_id=last.id)
        last = added[-1]
        say([history, "added", last.id, len(added)])
        await bench.runtime.change_memory("keeper", history, MemoryChange(state={"n": number}))
        say([history, "remembered", last.id, number])
        if number % 10 == 0:
            await kept.fork(history, f"b{number}")
            say([history, "forked", f"b{number}", number])


async def converse(folder: Path) -> None:
    """Write to several conversations at once."""
    async with agent_bench(folder) as bench, asyncio.TaskGroup() as together:
        for name in ("a", "b", "c"):
            together.create_task(write(bench, name))


# --- a scene ------------------------------------------------------------------------------------------

SCENE = {
    **{"id": "long", "name": "Long", "turn_order": {"turns": 1000, "at_start": True}},
    "agent_instances": [{"instance_id": name, "profile_id": name} for name in ("Ada", "Bob")],
}


def prepare_scene(project: Tavern) -> None:
    """Write the scene and its agents."""
    for name in ("Ada", "Bob"):
        project.write(f"agents/{name}.json", agent(name))
    project.write("scenes/long.json", SCENE)


def count(request: LlmRequest) -> Said:
    """Answer with how often the agent has spoken."""
    return said(str(1 + sum(message.role == "assistant" for message in request.messages)))


async def talk(folder: Path) -> None:
    """Let two agents talk for long, and change their world all the while."""
    async with agent_bench(folder, prepare_scene, serving=True) as bench:
        bench.model(count)
        scenes = bench.host.services.get(SCENE_MANAGER)
        run = await scenes.start("long")
        for number in itertools.count():
            world = await scenes.update_world({"number": number, f"key{number % 50}": number}, scene=run.id)
            say([number, world.revision])
