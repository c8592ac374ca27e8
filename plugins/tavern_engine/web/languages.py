"""Names and descriptions of node types in other languages, from the catalogues that come with plugins.

A catalogue is a file `LANGUAGE.json` in the folder that the manifest names under `locale`: a JSON object from each
text, as the definition has it, to what it is in that language.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue

from tavern_engine import EngineState
from tavern_host import PLUGINS, PluginContext, TavernError
from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.nodes import NodeDefinition

SHOWN = frozenset({"displayName", "description", "category", "label", "placeholder", "tooltip"})
"""Under which keys a definition has texts for people."""

DATA = frozenset({("", "configValues"), ("config", "default"), ("suggestions", "value")})
"""What of a definition is data, by where it is and its key: it is the same in all languages, whatever keys it has."""

Catalogue = dict[str, dict[str, str]]
"""By language, what texts are in it."""


async def translated(nodes: list[NodeDefinition], context: PluginContext) -> list[NodeDefinition]:
    """Return definitions that say what their texts are in other languages: as the plugin that offers them says it, or
    else as first-party plugins do."""
    plugins = context.services.get(PLUGINS)
    folders = [(asset.plugin, Path(asset.path)) for asset in await plugins.assets("locale")]
    catalogues, problems = await asyncio.to_thread(_read, folders)
    for plugin, problem in problems:
        context.hooks.report(plugin, problem)
    first_party = {info.name for info in await plugins.list_plugins() if info.first_party}
    common = _joined([catalogue for plugin, catalogue in catalogues.items() if plugin in first_party])
    known = {plugin: _joined([catalogue, common]) for plugin, catalogue in catalogues.items()}
    owners = {name: node.plugin for name, node in (await context.own(EngineState).types.types()).items()}
    return [_with_texts(node, known.get(owners.get(node.full_type, ""), common)) for node in nodes]


def _read(folders: list[tuple[str, Path]]) -> tuple[dict[str, Catalogue], list[tuple[str, str]]]:
    """Return the catalogue of each plugin, and what is wrong with whose files."""
    found: dict[str, Catalogue] = {}
    problems = []
    for plugin, folder in folders:
        for file in sorted(folder.glob("*.json")):
            try:
                texts = read_document_file(file)
            except TavernError as error:
                problems.append((plugin, error.message))
                continue
            said = {text: translation for text, translation in texts.items() if isinstance(translation, str)}
            found.setdefault(plugin, {})[file.stem] = said
    return found, problems


def _joined(catalogues: list[Catalogue]) -> Catalogue:
    """Return catalogues as one; of two that have a text the first counts."""
    found: Catalogue = {}
    for catalogue in reversed(catalogues):
        for language, texts in catalogue.items():
            found.setdefault(language, {}).update(texts)
    return found


def _with_texts(node: NodeDefinition, catalogue: Catalogue) -> NodeDefinition:
    shown = set(_texts(node.to_wire()))
    texts = {
        language: {text: known[text] for text in sorted(shown & known.keys())} for language, known in catalogue.items()
    }
    texts = {language: known for language, known in texts.items() if known}
    return node.model_copy(update={"texts": texts}) if texts else node


def _texts(value: JsonValue, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if key in SHOWN:
            yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            if (key, name) not in DATA:
                yield from _texts(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, key)
