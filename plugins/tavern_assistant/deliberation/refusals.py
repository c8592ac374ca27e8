"""What the assistant says where the host speaks in its place, in the language of the request."""

from __future__ import annotations

import json
import re
from typing import Any

_CJK = re.compile(r"[\u3400-\u9fff]")

_SAID = {
    "refused": (
        "I could not make this change; the workflow is as it was.",
        "这个修改没有成功，工作流保持原样。",
    ),
    "wrong": ("What was wrong:", "问题："),
    "tried": ("What was tried last:", "最后尝试的操作："),
    "said": ("The model's last answer:", "模型最后的回答："),
    "conflict": (
        "The workflow was changed while I worked on it, in the same places. Nothing was overwritten; ask again for the "
        "workflow as it is now.",
        "在我处理期间，工作流的同一处被修改了。没有覆盖任何内容，请针对现在的工作流重新提问。",
    ),
    "waits": ("The change waits for approval (task {}).", "修改正在等待批准（任务 {}）。"),
    "applied": ("The change is made.", "已完成修改。"),
    "proposed": ("Here is what I propose.", "这是我的修改建议。"),
    "unsaid": ("The answer is not shown: it has calls of tools in it.", "回答中含有工具调用，因此不显示。"),
    "nothing": ("There is nothing to change.", "没有需要修改的内容。"),
}
_MOST_SHOWN = 10


def said(key: str, request: str, *values: Any) -> str:
    """Return a sentence in the language of the request."""
    return _SAID[key][1 if _CJK.search(request) else 0].format(*values)


def refusal(request: str, problems: list[str], operations: list[dict[str, Any]], answer: str) -> str:
    """Return that nothing was changed, what was wrong, and what was tried."""
    lines = [said("refused", request), "", said("wrong", request), *(f"- {one}" for one in problems[:_MOST_SHOWN])]
    if operations:
        lines += ["", said("tried", request), *(f"- `{operation_line(one)}`" for one in operations[:_MOST_SHOWN])]
        lines += [f"- … {len(operations) - _MOST_SHOWN}"] if len(operations) > _MOST_SHOWN else []
    elif answer:
        lines += ["", said("said", request), *(f"> {line}" for line in answer[:600].splitlines())]
    return "\n".join(lines)


def operation_line(operation: dict[str, Any]) -> str:
    """Return an operation as one line."""
    value = operation.get("value")
    shown = "" if value is None else f" {json.dumps(value, ensure_ascii=False)}"
    return f"{operation.get('op')} {operation.get('path')}{shown}"[:200].replace("`", "'")
