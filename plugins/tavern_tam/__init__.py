"""The action protocol TAM (`spec/000` §5): reads calls out of text and writes them.

It carries nothing out and knows no tools beyond the parameter names that a parser is opened with.
"""

from __future__ import annotations

from tavern_host import hookimpl
from tavern_host.contracts.protocols import ActionProtocolInfo


@hookimpl
def tavern_register_action_protocols() -> list[ActionProtocolInfo]:
    """Return the protocol `tam`."""
    from tavern_tam.instructions import INSTRUCTIONS

    return [
        ActionProtocolInfo(
            name="tam",
            handler="tavern_tam.parser:TamParser",
            description="Tavern Action Manifest: key:「始」value「末」 between <|[REQUEST_TOOL]|> and <|[END_TOOL]|>.",
            instructions=INSTRUCTIONS,
        )
    ]
