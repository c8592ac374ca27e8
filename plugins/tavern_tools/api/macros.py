"""Prompt macros: `{{{name}}}` in a prompt, filled in by a plugin just before it is used."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.wire import Model


class PromptMacroInfo(Model):
    """A macro: `{{{name}}}`. `handler` is `async def handler(request: MacroRequest, context) -> str`.

    A `volatile` one has another text at each request, such as the time. Servers keep what they read of a prompt by its
    first bytes, so its text goes to the end of what a model reads; where it stood the prompt says so.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=str)

    name: str
    handler: Handler
    description: str = ""
    volatile: bool = False


class MacroRequest(Model):
    """A macro to fill in, and which tools the prompt's reader may call."""

    name: str
    tool_ids: list[str] = Field(default_factory=list)
    call: CallContext
