"""The hooks that the tool manager calls: macros of prompts, action protocols, and what sees calls of tools."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.hooks import Veto, hookspec
from tavern_tools.api.macros import PromptMacroInfo
from tavern_tools.api.protocols import ActionProtocolInfo
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult


@hookspec(
    permission="hook:server:prompts:register-macros",
    level="add",
    policy="collect",
    caller="toolManager",
    description="Fill in {{{macros}}} in the prompts of agents.",
    example="return [PromptMacroInfo(name='acme:weather', handler='acme_plugin.macros:weather')]",
)
def tavern_register_prompt_macros(context: PluginContext) -> list[PromptMacroInfo]:
    """Return prompt macros (`{{{system:available_tools}}}` and others)."""


@hookspec(
    permission="hook:server:actions:register-protocols",
    level="intercept",
    policy="collect",
    caller="toolManager",
    description="Read every text that may ask for tool calls, and say which calls stand in it: they are carried out.",
    example="return [ActionProtocolInfo(name='acme', handler='acme_plugin.parser:AcmeParser')]",
)
def tavern_register_action_protocols(context: PluginContext) -> list[ActionProtocolInfo]:
    """Return action protocols (TAM and its siblings)."""


@hookspec(
    permission="hook:server:tool:before-call",
    level="intercept",
    policy="veto",
    caller="toolManager",
    description="See every tool call before it is made, change its arguments or refuse it.",
    example="return Veto(reason='not on Sundays')",
)
def tavern_before_tool_call(
    request: ToolCallRequest, call: CallContext, context: PluginContext
) -> ToolCallRequest | Veto | None:
    """Return a changed call (its arguments count), `Veto` to refuse it, or None. An error refuses it too."""


@hookspec(
    permission="hook:server:tool:after-call",
    level="intercept",
    policy="veto",
    caller="toolManager",
    description="See the result of every tool call and change or withhold it.",
    example="return result.model_copy(update={'structured': None})",
)
def tavern_after_tool_call(
    result: ToolResult, request: ToolCallRequest, call: CallContext, context: PluginContext
) -> ToolResult | Veto | None:
    """Return a changed result, `Veto` to withhold it (what the tool did stands), or None."""
