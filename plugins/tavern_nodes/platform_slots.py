"""A short way to write down the slots of the platform's nodes; only what is given is set."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.nodes import DataFlowType, SlotDefinition


def slot(
    kind: str,
    display_name: str,
    description: str | None = None,
    *,
    required: bool | None = None,
    categories: tuple[str, ...] | None = None,
    multi: bool | None = None,
    stream: bool | None = None,
    actions: tuple[dict[str, Any], ...] | None = None,
    config: dict[str, Any] | None = None,
) -> SlotDefinition:
    """Return a slot's definition."""
    values = {
        "data_flow_type": DataFlowType(kind),
        "display_name": display_name,
        "description": description,
        "required": required,
        "match_categories": categories,
        "multi": multi,
        "is_stream": stream,
        "actions": actions,
        "config": config,
    }
    return SlotDefinition(**{key: value for key, value in values.items() if value is not None})


def choices(*values: str | float, labels: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """Return the suggestions of a control; a label is the value itself unless given."""
    return [
        {"value": value, "label": label} for value, label in zip(values, labels or tuple(map(str, values)), strict=True)
    ]
