"""The plugin: the protocol that it registers, and what language models are told of it."""

from __future__ import annotations

from pathlib import Path

from tam_reading import read

import tavern_tam
from tavern_host import TOOL_MANAGER, Host
from tavern_tam.parser import TamParser


def test_the_protocol_names_its_parser() -> None:
    protocol = next(info for info in tavern_tam.tavern_register_action_protocols() if info.name == "tam")
    assert protocol.name == "tam"
    assert protocol.handler == f"{TamParser.__module__}:{TamParser.__qualname__}"


def test_the_example_that_models_are_given_is_itself_valid() -> None:
    protocol = next(info for info in tavern_tam.tavern_register_action_protocols() if info.name == "tam")
    reading = read(protocol.instructions)
    assert reading.warnings == []
    assert [call.tool_id for call in reading.calls] == [
        "the tool's ID",
        "FileOperator.WriteFile",
        "FileOperator.AppendFile",
    ]


async def test_a_host_reads_tam(tmp_path: Path) -> None:
    async with Host(project=tmp_path / "p") as host:
        tools = host.services.get(TOOL_MANAGER)
        parsed = await tools.parse_text(
            "Hi <|[REQUEST_TOOL]|>command:「始」nobody.knows「末」<|[END_TOOL]|>", protocols=["tam"]
        )
    assert parsed.text == "Hi "
    assert [call.tool_id for call in parsed.calls] == ["nobody.knows"]
