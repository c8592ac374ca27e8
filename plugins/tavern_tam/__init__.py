"""The action protocols in which language models ask for tool calls: TAM, ACTION, tool_call and native function calls.

They find calls in text. They execute nothing, and know of the tools only what a parser is opened with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_host import hookimpl

if TYPE_CHECKING:
    from tavern_tools.api.protocols import ActionProtocolInfo


@hookimpl
def tavern_register_action_protocols() -> list[ActionProtocolInfo]:
    """Return the protocols; TAM is the default one."""
    from tavern_tam import action, instructions, parser, tag_block, tool_call
    from tavern_tools.api.protocols import ActionProtocolInfo

    return [
        ActionProtocolInfo(
            name="tam",
            handler="tavern_tam.parser:TamParser",
            description="Tavern Action Manifest: key:「始」value「末」 between <|[REQUEST_TOOL]|> and <|[END_TOOL]|>.",
            instructions=instructions.INSTRUCTIONS,
            openings=["<|[REQUEST"],
            endings=["「末」<|[END_TOOL]|>", "«««<|[END_TOOL]|>", "<<<<|[END_TOOL]|>", "「末」\n", "«««\n"],
            advice=parser.HOW_TO_WRITE,
        ),
        ActionProtocolInfo(
            name="action",
            handler="tavern_tam.action:ActionParser",
            description="An element <ACTION> with <tool_id> and <input name=…>, or with <ToolId> and <param name=…>.",
            instructions=action.INSTRUCTIONS,
            openings=["<ACTION"],
            endings=["</input></inputs></ACTION>", "</input></ACTION>", "</param></ACTION>"],
            advice=tag_block.HOW_TO_WRITE,
        ),
        ActionProtocolInfo(
            name="tool_call",
            handler="tavern_tam.tool_call:ToolCallParser",
            description='An element <tool_call name="…"> with <param name="…"> for each parameter.',
            instructions=tool_call.INSTRUCTIONS,
            openings=["<tool_call", "<tool-call", "<toolcall", "TOOL_CALL:", "TOOL-CALL:", "TOOLCALL:"],
            endings=[*(f"</{name}></tool_call>" for name in ("param", "input", "parameter")), '"}}', "}</tool_call>"],
            advice=tag_block.HOW_TO_WRITE,
        ),
        ActionProtocolInfo(
            name="native",
            handler="tavern_tam.native:NativeParser",
            description="Function calls in the field `tool_calls` of a model's answer.",
            source="native",
        ),
    ]
