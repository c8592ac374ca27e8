"""Finds words in workflows: in what is said of one, and in each of its nodes with their values, secrets apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from tavern_host.common.redaction import masked
from tavern_host.contracts.documents import json_path
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import WorkflowMatch
from tavern_workflows.store import Entry

_AROUND = 40
"""How many characters are shown before what was found."""
_SHOWN = 160

Text = tuple[tuple[str | int, ...], str]
"""Where a text stands, and the text."""


def search(entries: Mapping[str, Entry], text: str, limit: int) -> list[WorkflowMatch]:
    """Return where all words of a text stand together, by the ids of workflows."""
    words = text.casefold().split()
    found: list[WorkflowMatch] = []
    if not words:
        return found
    for identifier, entry in sorted(entries.items()):
        for node, texts in _places(identifier, entry.workflow):
            folded = [(path, value, value.casefold()) for path, value in texts]
            if not all(any(word in value for _, _, value in folded) for word in words):
                continue
            path, value, lower = next(one for one in folded if words[0] in one[2])
            start = max(0, lower.find(words[0]) - _AROUND)
            found.append(
                WorkflowMatch(
                    workflow=identifier,
                    name=entry.workflow.name or identifier,
                    node=node,
                    path=json_path(*path),
                    text=value[start : start + _SHOWN],
                )
            )
            if len(found) == limit:
                return found
    return found


def _places(identifier: str, workflow: Workflow) -> Iterator[tuple[str | None, list[Text]]]:
    about: list[Text] = [(("id",), identifier), (("name",), workflow.name)]
    about += [(("description",), workflow.description or "")]
    for slots in ("interface_inputs", "interface_outputs"):
        about += [((slots, key), key) for key in getattr(workflow, slots)]
    yield None, about
    for place, node in enumerate(workflow.nodes):
        at = ("nodes", place)
        texts: list[Text] = [((*at, "id"), node.id), ((*at, "type"), node.type)]
        texts += [((*at, "displayName"), node.display_name or "")]
        texts += _texts(masked(node.input_values), (*at, "inputValues"))
        texts += _texts(masked(node.config_values), (*at, "configValues"))
        yield node.id, texts


def _texts(value: JsonValue, path: tuple[str | int, ...]) -> Iterator[Text]:
    """Yield the texts in a value, those of objects in objects too. Values of files are no deeper than Python can go."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, bool | int | float):
        yield path, str(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, (*path, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _texts(part, (*path, place))
