"""What the assistant says where the host speaks in its place, in the language of the request."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tavern_host.contracts.languages import Catalogue

_CJK = re.compile(r"[\u3400-\u9fff]")

_CHINESE = Catalogue.read("zh", [Path(__file__).parents[1] / "messages" / "zh.json"])
_MOST_SHOWN = 10


def said(text: str, request: str) -> str:
    """Return a sentence in the language of the request."""
    return _CHINESE.say(text) if _CJK.search(request) else text


def refusal(request: str, problems: list[str], operations: list[dict[str, Any]], answer: str) -> str:
    """Return that nothing was changed, what was wrong, and what was tried."""
    changed = said("I could not make this change; nothing is changed.", request)
    lines = [changed, "", said("What was wrong:", request), *(f"- {one}" for one in problems[:_MOST_SHOWN])]
    if operations:
        tried = [f"- `{operation_line(one)}`" for one in operations[:_MOST_SHOWN]]
        tried += [f"- … {len(operations) - _MOST_SHOWN}"] if len(operations) > _MOST_SHOWN else []
        lines += ["", said("What was tried last:", request), *tried]
    elif answer:
        quoted = [f"> {line}" for line in answer[:600].splitlines()]
        lines += ["", said("The model's last answer:", request), *quoted]
    return "\n".join(lines)


def operation_line(operation: dict[str, Any]) -> str:
    """Return an operation as one line."""
    value = operation.get("value")
    shown = "" if value is None else f" {json.dumps(value, ensure_ascii=False)}"
    return f"{operation.get('op')} {operation.get('path')}{shown}"[:200].replace("`", "'")
