"""Expands `{{{macros}}}` in prompts. Knows names and texts; the function that fills a macro in is a parameter.

Only text of a workflow's author is expanded, never what users, tools or models said.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from pydantic import JsonValue

from tavern_host.contracts.errors import Misconfigured

MAX_DEPTH = 4
"""How deeply macros may be nested in the texts of other macros."""

MAX_CHARS = 1_000_000
"""How much text the macros of one value may add."""

_MACRO = re.compile(r"\{\{\{([^{}]{1,200})\}\}\}")

Resolve = Callable[[str], Awaitable[str | None]]
"""Returns the text of a macro, or None for one that cannot be filled in."""


class Expander:
    """Expands the macros of one value; each is filled in once. `warnings` says what was left as it was."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._texts: dict[str, str | None] = {}
        self._added = 0
        self.warnings: list[str] = []

    async def value(self, value: JsonValue) -> JsonValue:
        """Return a JSON value with the macros in all its strings expanded; keys are left alone."""
        if isinstance(value, str):
            return await self.text(value)
        if isinstance(value, list):
            return [await self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: await self.value(item) for key, item in value.items()}
        return value

    async def text(self, text: str) -> str:
        """Return a text with its macros expanded. Raises `Misconfigured` where they grow without measure."""
        return await self._expand(text, ())

    async def _expand(self, text: str, within: tuple[str, ...]) -> str:
        if "{{{" not in text:
            return text
        parts: list[str] = []
        end = 0
        for match in _MACRO.finditer(text):
            filled = await self._fill(match.group(1).strip(), within)
            parts += [text[end : match.start()], match.group(0) if filled is None else filled]
            end = match.end()
        return "".join([*parts, text[end:]])

    async def _fill(self, name: str, within: tuple[str, ...]) -> str | None:
        if name in within:
            self._warn(f"the macro {name!r} contains itself ({' → '.join([*within, name])}); left as it is")
            return None
        if len(within) >= MAX_DEPTH:
            self._warn(f"macros are nested more than {MAX_DEPTH} deep at {name!r}; left as it is")
            return None
        if name not in self._texts:
            self._texts[name] = await self._resolve(name)
        text = self._texts[name]
        if text is None:
            return None
        self._added += len(text)
        if self._added > MAX_CHARS:
            raise Misconfigured(f"the prompt's macros expand to more than {MAX_CHARS:,} characters (at {name!r})")
        return await self._expand(text, (*within, name))

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
