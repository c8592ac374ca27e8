"""A short way to write nodes that run in threads and processes of their own."""

from __future__ import annotations

from typing import Any

from loops_bench import flow


def apart(type: str, **values: Any) -> dict[str, Any]:
    """Return a node of the test plugin `acme-apart` with these written values."""
    return {**flow(type, **values), "type": f"acme-apart:{type}"}
