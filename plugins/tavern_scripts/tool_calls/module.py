"""The module `tools` of a script, generated from the tools that it may call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.tools import ToolDefinition
from tavern_scripts.api.code_mode import CodeStyle, ambiguous_names, function_names, signature
from tavern_scripts.api.scripts import RunnableLanguage, SandboxLaunch, SandboxMount
from tavern_scripts.environments.environments import NODE_PACKAGES
from tavern_scripts.workers.launches import RUNNERS

_RUNNER_FILES = Path(__file__).parent.parent / "runners"
_PYTHON = f"{RUNNERS}/calls"


def with_module(
    launch: SandboxLaunch, folder: Path, language: RunnableLanguage, tools: Sequence[ToolDefinition]
) -> SandboxLaunch:
    """Write the module into the folder of a run; return a program that can import it. Blocking.

    Raises `InvalidInput` for JavaScript with packages: theirs is the only folder where Node.js would look for it.
    """
    place = folder / "node_modules" / "tools"  # above the code, where a sandbox shows the paths of the host
    place.mkdir(parents=True)
    for made in (place, place.parent):
        made.chmod(0o755)
    style: CodeStyle = "python" if language == "python" else "javascript"
    by_id = {tool.id: tool for tool in tools}
    names, shared = function_names(by_id, style), ambiguous_names(by_id, style)
    if style == "python":
        about = {name: {"id": id, "doc": _documentation(name, by_id[id])} for name, id in names.items()}
        source = (_RUNNER_FILES / "tools.py").read_text(encoding="utf-8")
        _write(place / "tools.py", source)
        _write(place / "tools.json", json.dumps({"names": about, "shared": shared}))
        path = ":".join(filter(None, (_PYTHON, launch.environment.get("PYTHONPATH"))))
        environment = {**launch.environment, "PYTHONPATH": path}
        mounts = [*launch.mounts, SandboxMount(target=_PYTHON, source=str(place))]
        return launch.model_copy(update={"mounts": mounts, "environment": environment})
    if any(mount.target == NODE_PACKAGES for mount in launch.mounts):
        raise InvalidInput("JavaScript that needs packages is given no tools; leave the packages or the tools out")
    _write(place / "package.json", json.dumps({"name": "tools", "type": "module", "exports": "./index.mjs"}))
    lines = [(_RUNNER_FILES / "tools.mjs").read_text(encoding="utf-8")]
    for name, tool_id in names.items():
        text = _documentation(name, by_id[tool_id]).replace("*/", "* /")
        lines.append(f"/** {text} */\nexport const {name} = (given) => call({json.dumps(tool_id)}, given);")
    parts = ["call", "ToolError", *names]
    for name in shared.keys() - names.keys():
        message = json.dumps(f"{name} could be {' or '.join(shared[name])}: use that name")
        parts.append(f"get {name}() {{ throw new TypeError({message}); }}")
    lines.append(f"export default {{ {', '.join(parts)} }};")
    _write(place / "index.mjs", "\n".join(lines))
    mount = SandboxMount(target=f"{NODE_PACKAGES}/tools", source=str(place))
    return launch.model_copy(update={"mounts": [*launch.mounts, mount]})


def _documentation(name: str, tool: ToolDefinition) -> str:
    return f"{signature(name, tool)}\n\n{tool.description or tool.display_name} ({tool.id})"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
