"""The prompt macros that plugins registered, filled in."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.context import HookResult, PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound, PluginFailure, TavernError, describe
from tavern_host.contracts.names import did_you_mean
from tavern_tools import State
from tavern_tools.api.macros import MacroRequest, PromptMacroInfo
from tavern_tools.api.tools import ExpandedPrompt
from tavern_tools.catalog.contributions import mend_hint
from tavern_tools.protocols.expansion import Expander

_HOOK = "tavern_register_prompt_macros"
_AT_FAULT = frozenset({PluginFailure.code, NotFound.code})
"""The codes of errors in a macro that are its plugin's doing: its code failed, or its handler is gone."""

_Offers = dict[str, tuple[PromptMacroInfo, HookResult[Any]]]


class PromptMacros:
    """Collects the macros again whenever plugins or grants have changed, or a plugin has published `TOOLS_CHANGED`."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._registry = context.own(State).registry
        self._revision = (-1, 0)
        self._offers: _Offers = {}
        self._failed: set[str] = set()

    async def expand(self, value: JsonValue, tool_ids: list[str], call: CallContext) -> ExpandedPrompt:
        """Return the value with its macros filled in; one that cannot be is left as it is, with a warning.

        Raises `Misconfigured` where they grow without measure.
        """
        await self._collect()
        warnings: list[str] = []
        latest: list[str] = []

        async def resolve(name: str) -> str | None:
            try:
                text = await self._fill_in(MacroRequest(name=name, tool_ids=tool_ids, call=call))
            except TavernError as error:
                warnings.append(error.message)
                return None
            if not self._offers[name][0].volatile:
                return text
            latest.append(f"{name}: {text}")
            return f"[{name}: see the end of the conversation]"

        expander = Expander(resolve)
        expanded = await expander.value(value)
        return ExpandedPrompt(value=expanded, latest=latest, warnings=[*warnings, *expander.warnings])

    async def _fill_in(self, request: MacroRequest) -> str:
        name = request.name
        if name not in self._offers:
            raise NotFound(f"no plugin provides the macro {name!r}{did_you_mean(name, self._offers)}; left as it is")
        info, contribution = self._offers[name]
        try:
            text = await contribution.call(info.handler, request)
        except Exception as error:
            reason = error.message if isinstance(error, TavernError) else describe(error)
            if not isinstance(error, TavernError) or error.info.code in _AT_FAULT:
                self._report_failed(name, contribution.plugin, f"failed: {reason}")
            raise TavernError(f"{contribution.plugin} failed in the macro {name!r}: {reason}; left as it is") from error
        if not isinstance(text, str):
            found = type(text).__name__
            self._report_failed(name, contribution.plugin, f"returned {found}, expected str")
            raise TavernError(f"{contribution.plugin} gave {found} for the macro {name!r}, not a text; left as it is")
        return text

    def _report_failed(self, name: str, plugin: str, reason: str) -> None:
        """Say with a plugin what went wrong with a macro when it failed first."""
        if name not in self._failed:
            self._failed.add(name)
            self._context.hooks.report(plugin, f"the macro {name!r} {reason}", hint=mend_hint(plugin))

    async def _collect(self) -> None:
        revision = (self._context.hooks.revision, self._registry.offers)
        if revision == self._revision:
            return
        offers: _Offers = {}
        owners = dict[str, str]()
        for contribution in await self._context.hooks.collect(_HOOK):
            for info in contribution.value:
                if self._context.hooks.claim(owners, "macro", info.name, contribution.plugin):
                    offers[info.name] = (info, contribution)
        self._offers, self._revision = offers, revision
        self._failed.clear()
