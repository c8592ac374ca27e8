"""Names and descriptions of node types in other languages, from the catalogues that come with plugins.

A catalogue is a file `LANGUAGE.json` in the folder that the manifest names under `locale`: a JSON object from each
text, as the definition has it, to what it is in that language.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue

from tavern_host import PLUGINS, PluginContext, TavernError
from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.nodes import NodeDefinition

SHOWN = frozenset({"displayName", "description", "category", "label", "placeholder", "tooltip"})
"""Under which keys a definition has texts for people."""

Catalogues = dict[str, dict[str, str]]
"""By language, what texts are in it."""


async def translated(nodes: list[NodeDefinition], context: PluginContext) -> list[NodeDefinition]:
    """Return definitions that say what their texts are in other languages."""
    folders = [(asset.plugin, Path(asset.path)) for asset in await context.services.get(PLUGINS).assets("locale")]
    catalogues, problems = await asyncio.to_thread(_read, folders)
    for plugin, problem in problems:
        context.hooks.report(plugin, problem)
    return [_with_texts(node, catalogues) for node in nodes] if catalogues else nodes


def _read(folders: list[tuple[str, Path]]) -> tuple[Catalogues, list[tuple[str, str]]]:
    """Return all catalogues as one, and what is wrong with files; of two that have a text the first counts."""
    found: Catalogues = {}
    problems = []
    for plugin, folder in folders:
        for file in sorted(folder.glob("*.json")):
            try:
                texts = read_document_file(file)
            except TavernError as error:
                problems.append((plugin, error.message))
                continue
            language = found.setdefault(file.stem, {})
            for text, said in texts.items():
                if isinstance(said, str):
                    language.setdefault(text, said)
    return found, problems


def _with_texts(node: NodeDefinition, catalogues: Catalogues) -> NodeDefinition:
    shown = set(_texts(node.to_wire()))
    texts = {
        language: {text: known[text] for text in sorted(shown & known.keys())} for language, known in catalogues.items()
    }
    texts = {language: known for language, known in texts.items() if known}
    return node.model_copy(update={"texts": texts}) if texts else node


def _texts(value: JsonValue, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if key in SHOWN:
            yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
