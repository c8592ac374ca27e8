"""The kernel knows kinds of contributions that plugins declare: no workflow, node, tool, script, agent or model, apart
from the hooks that are the platform's, and their models."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tavern_host

KERNEL = Path(tavern_host.__file__).parent
CORE = ("plugins", "hooks", "services", "host.py")
PLATFORM = (
    *("hookspecs.py", "contracts/nodes.py", "contracts/tools.py", "contracts/executions.py", "contracts/workflows.py"),
    # What authors write with, and the fields of their manifests.
    *("__init__.py", "sdk/decorator.py", "sdk/slots.py", "context/__init__.py", "contracts/manifest.py"),
    *("contracts/ui.py", "testing/fixtures.py"),
)
"""The hooks of the host and their models, which name what they are about."""
NAMED = {
    "contracts/accounts.py": {"agent", "tool"},  # whose work is ended
    "contracts/calls.py": {"agent"},
    "runtime/issued.py": {"agent"},
    "contracts/settings.py": {"tool"},  # settings of files beside the manifest
    "settings/service.py": {"tool"},
    "server/subscriptions.py": {"agent", "node", "workflow"},  # what clients of the platform subscribe to
    "storage/files.py": {"node"},  # node_modules
    "storage/yaml_file.py": {"node"},  # of a YAML document
    "storage/yaml_nodes.py": {"node"},
}
"""Words that a file may have, outside of the core."""

WORDS = frozenset({"workflow", "node", "tool", "script", "agent", "model", "llm"})
OF_PYDANTIC = re.compile(r"BaseModel|Model|model_[a-z_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every identifier with its line: names, attributes, arguments, imports, and texts that could be one."""
    for part in ast.walk(tree):
        line = getattr(part, "lineno", 0)
        if isinstance(part, ast.Name):
            yield line, part.id
        elif isinstance(part, ast.Attribute):
            yield line, part.attr
        elif isinstance(part, ast.arg | ast.keyword) and part.arg is not None:
            yield line, part.arg
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield line, part.name
        elif isinstance(part, ast.alias):
            yield from ((line, name) for name in (*part.name.split("."), part.asname or ""))
        elif isinstance(part, ast.ImportFrom) and part.module:
            yield from ((line, name) for name in part.module.split("."))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            yield line, part.value


def foreign_words(text: str) -> list[str]:
    """Return `line: identifier` for each identifier that has one of the words, in the singular or plural."""
    return [
        f"{line}: {name}"
        for line, name in identifiers(ast.parse(text))
        if not OF_PYDANTIC.fullmatch(name)
        and any(word.lower().removesuffix("s") in WORDS for word in _PART.findall(name))
    ]


def test_words_of_features_are_found_in_identifiers() -> None:
    sample = (
        "from tavern_host.contracts.tools import TOOL_MANAGER\n"
        "class NodeRunner(BaseModel): llm_name: str\n"
        "def run(workflow_id, *, scripts=()): return agents.of('model')\n"
        "x = item.model_validate(getattr(manifest, 'tools'))\n"
        "y = toolbar + anode + description + 'no tools are identifiers here'\n"
    )
    assert sorted(foreign_words(sample)) == [
        *("1: TOOL_MANAGER", "1: tools", "2: NodeRunner", "2: llm_name"),
        *("3: agents", "3: model", "3: scripts", "3: workflow_id", "4: tools"),
    ]


def test_the_core_names_no_feature() -> None:
    files = [file for part in CORE for file in (sorted((KERNEL / part).rglob("*.py")) or [KERNEL / part])]
    assert len(files) > 15
    found = {str(file.relative_to(KERNEL)): foreign_words(file.read_text(encoding="utf-8")) for file in files}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_kernel_around_the_core_names_features_in_few_places() -> None:
    found = {}
    for file in sorted(KERNEL.rglob("*.py")):
        name = file.relative_to(KERNEL).as_posix()
        identifiers = (line.partition(": ")[2] for line in foreign_words(file.read_text(encoding="utf-8")))
        parts = {part.lower().removesuffix("s") for text in identifiers for part in _PART.findall(text)}
        words = parts & WORDS - {"model"}  # of pydantic, outside of the core
        if name not in PLATFORM and words:
            found[name] = words
    assert found == NAMED
