"""Pictures in messages: they reach the model, stay with their conversation, and go with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tavern_agents.api.histories import HistoryExport
from tavern_agents.api.recordings import ReplayOptions
from tavern_host.context import Blobs
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_llm.api.llm import ChatImage, LlmResponse
from tests.agents.agent_bench import AgentBench, agent_bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

PNG = b"\x89PNG\r\n\x1a\n-a-picture"


def answer(text: str) -> LlmResponse:
    return LlmResponse(text=text, model="m")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of this file."""
    async with agent_bench(tmp_path_factory.mktemp("pictures")) as made:
        yield made


@pytest.fixture
def blobs(bench: AgentBench) -> Blobs:
    """Return the Blobs as the agents' plugin has them."""
    return bench.host._manager.active["tavern-agents"].context.blobs


async def _picture(blobs: Blobs, content: bytes = PNG) -> ChatImage:
    return ChatImage(blob=await blobs.put(content, "image/png"))


async def test_a_picture_is_seen_by_the_model_in_this_turn_and_the_next_one(bench: AgentBench, blobs: Blobs) -> None:
    model, picture = bench.answers(answer("A cat."), answer("Still.")), await _picture(blobs)
    await bench.run("What is this?", conversation_id="seen", images=[picture])
    await bench.run("And now?", conversation_id="seen")
    assert [[one.images for one in request.messages if one.role == "user"] for request in model.asked] == [
        [(picture,)],
        [(picture,), ()],
    ]


async def test_a_picture_alone_is_a_message(bench: AgentBench, blobs: Blobs) -> None:
    model = bench.answers(answer("A cat."), answer("A dog."))
    await bench.run("", conversation_id="alone", images=[await _picture(blobs)])
    (said, answered) = await bench.histories.load("alone")
    await bench.run(
        "", conversation_id="alone", images=[await _picture(blobs)], parent_id=answered.id, head=answered.id
    )
    assert said.message.images and len(model.asked[1].messages) == len(model.asked[0].messages) + 2


async def test_pictures_are_held_until_their_conversation_is_deleted(bench: AgentBench, blobs: Blobs) -> None:
    bench.answers(answer("A cat."))
    await bench.run("What is this?", conversation_id="held", images=[await _picture(blobs)])
    await bench.histories.fork_history("held", "copy")
    assert {"history:held", "history:copy"} <= {*await blobs.holders()}
    await bench.histories.delete("held")
    assert "history:held" not in await blobs.holders()
    assert "history:copy" in await blobs.holders()


@pytest.mark.parametrize(
    ("blob", "error", "why"),
    [
        ({"media_type": "text/html", "length": 3}, InvalidInput, "image/png"),
        ({"media_type": "image/svg+xml", "length": 3}, InvalidInput, "image/png"),
        ({"media_type": "image/png", "length": 1 << 30}, InvalidInput, "at most 32 MiB"),
        ({"media_type": "image/png", "length": 3}, NotFound, "not kept"),
    ],
)
async def test_what_is_no_picture_or_not_here_is_refused(
    bench: AgentBench, blob: dict[str, object], error: type[Exception], why: str
) -> None:
    bench.answers(answer("?"))
    image = ChatImage(blob=Blob.model_validate({"hash": "0" * 64, **blob}))
    with pytest.raises(error, match=why):
        await bench.run("What is this?", conversation_id="refused", images=[image])
    with pytest.raises(NotFound):
        await bench.histories.get_history("refused")


async def test_an_exported_conversation_has_its_pictures(bench: AgentBench, blobs: Blobs) -> None:
    bench.answers(answer("A cat."))
    picture = await _picture(blobs, PNG + b"-exported")
    await bench.run("What is this?", conversation_id="taken", images=[picture])
    exported = HistoryExport.model_validate_json((await bench.histories.export_history("taken")).model_dump_json())
    assert picture.blob is not None and [*exported.pictures] == [picture.blob.hash]
    await bench.histories.import_history(exported, history_id="brought")
    assert "history:brought" in await blobs.holders()
    other = exported.model_copy(update={"pictures": {picture.blob.hash: "b3RoZXI="}})
    with pytest.raises(InvalidInput, match="other content"):
        await bench.histories.import_history(other, history_id="wrong")


async def test_an_export_has_pictures_as_far_as_they_fit(bench: AgentBench, blobs: Blobs) -> None:
    bench.answers(answer("Large ones."))
    pictures = [await _picture(blobs, PNG + bytes([number]) * (6 << 20)) for number in range(2)]
    await bench.run("What are these?", conversation_id="large", images=pictures)
    exported = await bench.histories.export_history("large")
    assert len(exported.pictures) == 1
    assert len(exported.messages[0].message.images) == 2
    await bench.histories.import_history(exported, history_id="large-2")
    assert len((await bench.histories.load("large-2"))[0].message.images) == 2


async def test_a_recording_with_pictures_is_played_where_they_are_not(bench: AgentBench, blobs: Blobs) -> None:
    bench.answers(answer("A cat."))
    run = await bench.start("What is this?", images=[await _picture(blobs)])
    await bench.ended(run)
    recording = await bench.runtime.recording(run.id)
    assert len(recording.images) == 1
    played = await bench.runtime.replay(recording, ReplayOptions())
    assert (played.difference, played.text) == (None, "A cat.")
