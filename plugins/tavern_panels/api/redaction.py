"""Documents of panels without the secrets among their values."""

from __future__ import annotations

from typing import Any

from tavern_host.common.redaction import is_hidden, masked
from tavern_host.contracts.settings import MASK

Document = dict[str, Any]


def masked_panel(document: Document) -> Document:
    """Return a panel's document with a mask in the place of each secret among its values."""
    elements = document.get("elements")
    if not isinstance(elements, list):
        return document
    return {**document, "elements": [_masked(one) if isinstance(one, dict) else one for one in elements]}


def _masked(element: dict[str, Any]) -> dict[str, Any]:
    found = dict(element)
    if isinstance(inputs := element.get("inputs"), dict):
        found["inputs"] = {
            key: {**one, "value": MASK} if isinstance(one, dict) and is_hidden(key, one.get("value")) else one
            for key, one in inputs.items()
        }
    if isinstance(examples := element.get("examples"), list):
        found["examples"] = [
            {**one, "inputs": masked(one["inputs"])} if isinstance(one, dict) and "inputs" in one else one
            for one in examples
        ]
    return found
