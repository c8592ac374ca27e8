"""What the isolated node imports when it runs."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    return f"<{value}>"
