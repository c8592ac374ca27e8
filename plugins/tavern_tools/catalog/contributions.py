"""What is said of what plugins contribute."""

from __future__ import annotations


def mend_hint(plugin: str) -> str:
    """Return a hint on how to mend something of a plugin that cannot be used."""
    return f"mend it there, or keep it out with `tavern plugins disable {plugin}`"
