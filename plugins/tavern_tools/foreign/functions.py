"""Tools that are described for language models alone, as lists of functions: drafts of tool files. What one does is
written by hand, unless the project has a workflow of its name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterator
from typing import Any

from tavern_tools.foreign.plugin_folder import json_text, one_line

MOST = 300
_CODE = '''"""{text}"""


def {function}(given: dict) -> object:
    raise NotImplementedError("{function} came as a description alone: write here what it does")
'''


def functions_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the functions of a list for OpenAI's or Anthropic's API: name, description and parameters."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("tools", "functions") if isinstance(value.get(key), list)), [value])
    for entry in value if isinstance(value, list) else ():
        inner = entry.get("function", entry) if isinstance(entry, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("name"), str) and inner["name"].strip():
            schema = inner.get("parameters", inner.get("input_schema", inner.get("inputSchema")))
            yield {
                "name": inner["name"].strip()[:100],
                "description": inner.get("description") if isinstance(inner.get("description"), str) else "",
                "parameters": schema if isinstance(schema, dict) else {"type": "object", "properties": {}},
            }


def draft_of(function: dict[str, Any], workflows: Collection[str]) -> tuple[str, str, str | None]:
    """Return the name of a tool file, its text, and the code of its script; none where a workflow carries it out."""
    name = re.sub(r"[^\w.-]+", "_", function["name"]).strip("._")[:80] or "tool"
    document: dict[str, Any] = {"id": name, "description": function["description"][:4000]}
    if name in workflows:
        document["implementation"] = {"type": "workflow", "workflowId": name}
        return name, json_text({**document, "parameters": function["parameters"]}), None
    entry = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "run"
    entry = f"run_{entry}" if entry[0].isdigit() or keyword.iskeyword(entry) else entry
    document["implementation"] = {
        "type": "script",
        "language": "python",
        "scriptPath": f"{name}.py",
        "entryPoint": entry,
    }
    text = one_line(function["description"], 100).replace("\\", "/").replace('"', "'") or name
    return name, json_text({**document, "parameters": function["parameters"]}), _CODE.format(text=text, function=entry)
