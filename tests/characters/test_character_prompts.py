"""What a model is asked by an agent that was made of a card: macros, the book, who the user is."""

from __future__ import annotations

import json

import pytest
import pytest_asyncio
from helpers.stub_llm import said

from tavern_characters.api.characters import CHARACTERS, Characters, Persona
from tavern_host import InvalidInput, NotFound
from tavern_worlds.api.scenes import SCENE_MANAGER
from tests.agents.agent_bench import AgentBench
from tests.characters.card_files import MIRA, V3, dumped

pytestmark = pytest.mark.asyncio(loop_scope="module")


def characters(bench: AgentBench) -> Characters:
    return bench.host.services.get(CHARACTERS)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def somebody_else(bench: AgentBench) -> None:
    """Be the same person in each test, whatever the one before it has left."""
    await characters(bench).save_persona(Persona(name="Somebody else"))


async def test_a_character_is_talked_to(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped(V3), character="mira")
    await characters(bench).save_persona(Persona(name="Ada", description="{{user}} bakes bread."))
    begun = await characters(bench).begin("mira")
    assert begun.greetings == 3
    firsts = await bench.histories.children(begun.id)
    assert [one.message.content for one in firsts] == [
        "*Mira looks up.* Come in, Ada!\nIt is late.",
        "The inn is closed, Ada.",
        "又是你，Ada？",
    ]
    await characters(bench).save_persona(Persona(name="Somebody else"))
    model = bench.answers(said("Oh no."))
    reply = await bench.run("Is there a dragon?", "mira", conversation_id=begun.id)
    assert reply.text == "Oh no."
    assert [(one.role, one.content) for one in model.asked[0].messages] == [
        (
            "system",
            "Write Mira's next reply in a conversation between Mira and Ada. Speak as an innkeeper.",
        ),
        ("system", "Mira fears the dragon of the silver hill."),
        ("system", "Ada bakes bread."),
        ("system", "Mira keeps the inn. Ada is her guest."),
        ("system", "Warm and curious."),
        ("system", "It rains."),
        ("system", "An example of how Mira talks:\nAda: Soup?\nMira: Always."),
        ("assistant", "*Mira looks up.* Come in, Ada!\nIt is late."),
        ("system", "Silver was dug there."),
        ("system", "Mira limps."),
        ("user", "Is there a dragon?"),
        ("system", "Stay in the inn, Mira."),
    ]


async def test_another_greeting_and_another_answer(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped(V3), character="again")
    begun = await characters(bench).begin("again")
    first, second, _ = await bench.histories.children(begun.id)
    await bench.histories.activate(begun.id, message_id=second.id, head=first.id)
    model = bench.answers(said("Please."), said("Pretty please."))
    await bench.run("Let me in!", "again", conversation_id=begun.id)
    assert "The inn is closed, Somebody else." in [one.content for one in model.asked[0].messages]
    head = (await bench.histories.get_history(begun.id)).branches[0].head
    swiped = await bench.run("", "again", conversation_id=begun.id, parent_id=head, head=head)
    assert swiped.text == "Pretty please."
    kept = await bench.histories.load(begun.id)
    assert [one.message.content for one in kept][1:] == ["Let me in!", "Pretty please."]
    assert len(await bench.histories.children(begun.id, kept[1].id)) == 2


async def test_a_card_without_anything_can_be_talked_to(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped({**dict.fromkeys(MIRA, ""), "name": "Blank"}), name="blank.json")
    begun = await characters(bench).begin("blank")
    assert (begun.greeting, begun.greetings) == ("", 0)
    model = bench.answers(said("Hm."))
    await bench.run("Hello", "blank", conversation_id=begun.id)
    assert [one.content for one in model.asked[0].messages] == [
        "Write Blank's next reply in a conversation between Blank and Somebody else.",
        "Hello",
    ]


async def test_a_character_calls_tools_and_nothing_stands_between_a_call_and_its_result(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped({**V3, "data": {**V3["data"], "name": "艾拉"}}), name="x.json")
    (id,) = [one.id for one in await characters(bench).list_characters() if one.name == "艾拉"]
    profile = bench.project.root / "agents" / f"{id}.json"
    profile.write_text(
        json.dumps({**json.loads(profile.read_text()), "tool_ids_inventory": ["system:get_current_time"]})
    )
    model = bench.answers(said("Let me look.", ("system:get_current_time", {})), said("It is late."))
    reply = await bench.run("A dragon? What time is it?", id)
    assert reply.text == "It is late."
    assert [one["function"]["name"] for one in model.asked[0].tools] != []
    asked = model.asked[1].messages
    call = next(at for at, one in enumerate(asked) if one.tool_calls)
    assert [one.role for one in asked[call : call + 2]] == ["assistant", "tool"]
    assert "Mira limps." in [one.content for one in asked[:call]]


async def test_several_characters_talk_in_a_scene(bench: AgentBench) -> None:
    ann = {**MIRA, "name": "Ann", "first_mes": "Alone?", "group_only_greetings": [" ", "Ah, {{user}} and friends!"]}
    ben = {**MIRA, "name": "Ben", "first_mes": "{{char}} nods at {{user}}."}
    for card in ({"spec": "chara_card_v3", "data": ann}, ben):
        made = await characters(bench).import_card(dumped(card), name="a.json")
        assert made.unsupported == []
    scenes = bench.host.services.get(SCENE_MANAGER)
    scene = await scenes.create("The inn", ["ann", "ben"], description="Rain.")
    assert (scene.id, [one.profile_id for one in scene.agent_instances]) == ("the-inn", ["ann", "ben"])
    assert (await scenes.create("The inn", ["ann"])).id == "the-inn-2"
    model = bench.answers(said("Hello, Ben."), said("Hello, Ann."))
    run = await scenes.start("the-inn")
    greeted = [one.message for one in await bench.histories.load(run.id)]
    assert [(one.role, one.name, one.content) for one in greeted] == [
        ("assistant", "Ann", "Ah, Somebody else and friends!"),
        ("assistant", "Ben", "Ben nods at Somebody else."),
    ]
    await scenes.say(run.id, "Talk!", name="Ada")
    await scenes.wait(run.id)
    assert [one.message.content for one in await bench.histories.load(run.id)][2:] == [
        "Talk!",
        "Hello, Ben.",
        "Hello, Ann.",
    ]
    first, second = ([one.content for one in asked.messages] for asked in model.asked)
    assert "Ann keeps the inn. Somebody else is her guest." in first
    assert "Ben keeps the inn. Somebody else is her guest." in second
    assert first[-2:] == ["Ah, Somebody else and friends!", "Ben: Ben nods at Somebody else.\n\nAda: Talk!"]
    heard = ["Ann: Ah, Somebody else and friends!", "Ada: Talk!", "Ann: Hello, Ben."]
    assert second[-2:] == ["Ben nods at Somebody else.", "\n\n".join(heard)]
    (bench.project.root / "characters" / "ben.json").unlink()
    again = await scenes.start("the-inn")
    assert [one.message.name for one in await bench.histories.load(again.id)] == ["Ann"]
    with pytest.raises(NotFound):
        await scenes.create("The inn", ["nobody"])
    with pytest.raises(InvalidInput, match="stands twice"):
        await scenes.create("The inn", ["ann", "ann"])


PRESET = {
    "temperature": 0.7,
    "openai_max_tokens": 300,
    "top_k": 40,
    "assistant_prefill": "Sure",
    "prompts": [
        {"identifier": "main", "role": "system", "content": "Act as {{char}}."},
        {"identifier": "own", "role": "user", "content": "({{user}} is tired.)"},
        {"identifier": "off", "role": "system", "content": "Never."},
        {"identifier": "charDescription", "marker": True},
        {"identifier": "chatHistory", "marker": True},
    ],
    "prompt_order": [
        {
            "character_id": 100001,
            "order": [
                {"identifier": one, "enabled": one != "off"}
                for one in ("own", "charDescription", "main", "off", "chatHistory")
            ],
        }
    ],
}


async def test_a_preset_is_what_a_character_thinks_with(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped({**MIRA, "name": "Cleo"}), character="cleo")
    made = await characters(bench).import_preset(dumped(PRESET), name="My preset.json", character="cleo")
    assert (made.workflow, made.unsupported) == ("characters/my-preset", ["assistant_prefill", "top_k"])
    begun = await characters(bench).begin("cleo")
    model = bench.answers(said("Yes."))
    await bench.run("Hello", "cleo", conversation_id=begun.id)
    (asked,) = model.asked
    assert [(one.role, one.content) for one in asked.messages] == [
        ("user", "(Somebody else is tired.)"),
        ("system", "Cleo keeps the inn. Somebody else is her guest."),
        ("system", "Act as Cleo."),
        ("assistant", begun.greeting),
        ("user", "Hello"),
    ]
    assert asked.parameters == {"temperature": 0.7, "max_tokens": 300}
    again = await characters(bench).import_preset(dumped(PRESET), name="My preset.json")
    assert again.workflow == "characters/my-preset-2"
    for content, part in [
        (dumped(MIRA), "is a character card"),
        (b"{}", "is no preset"),
        (dumped({**PRESET, "prompts": [1]}), "prompts[0]"),
    ]:
        with pytest.raises(InvalidInput) as caught:
            await characters(bench).import_preset(content, name="x.json")
        assert part in caught.value.message


async def test_the_conversation_goes_where_its_export_goes(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped(V3), character="mover")
    begun = await characters(bench).begin("mover", conversation_id="kept")
    exported = await bench.histories.export_history(begun.id)
    assert json.loads(exported.model_dump_json())["memories"]
    moved = await bench.histories.import_history(exported, history_id="moved")
    model = bench.answers(said("Well."))
    await bench.run("Hello", "mover", conversation_id=moved.id)
    assert "Mira keeps the inn. Somebody else is her guest." in [one.content for one in model.asked[0].messages]
