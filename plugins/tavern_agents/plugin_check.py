"""What is wrong with the agents of one plugin, by the checks of every profile."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tavern_agents.api.agents import AgentProblem
from tavern_agents.profile_checks import check_profiles
from tavern_agents.profiles import read_profiles
from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host.context import PluginContext
from tavern_host.contracts.plugins import PluginAsset

_MEND = {
    "is not JSON": "mend the JSON at this place",
    "there is no workflow": "name a workflow of the host, or add one to the plugin",
    "there is no tool": "correct the id, or require the plugin that has it",
    "is not a field": "correct it, or leave it out",
    "is missing": "add it",
}
_ELSE = "docs/agents.md says what a profile has"
_NO_PROJECT = "no project"
"""A folder that is not there: of a project's profiles none takes the place of one."""
_HERE = re.compile(r"the tool .* cannot be called now: ")


async def check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Return the faults of a plugin's profiles; the names in them are looked up for one that is loaded."""
    folder = plugin.folders.get("agents")
    if folder is None:
        return []
    brought = [PluginAsset(plugin=plugin.name, kind="agents", path=folder)]
    profiles = await asyncio.to_thread(read_profiles, Path(folder) / _NO_PROJECT, brought)
    if plugin.is_loaded:
        problems = await check_profiles(context, profiles, None)
    else:
        problems = [problem for broken in profiles.broken for problem in broken.problems]
    return [_finding(Path(folder), plugin.name, one) for one in problems if not _HERE.match(one.message)]


def _finding(folder: Path, plugin: str, problem: AgentProblem) -> Finding:
    path = "" if problem.path == "$" else f"{problem.path}: "
    return Finding(
        rule="agents",
        level=problem.level,
        message=f"{path}{problem.message}",
        hint=next((hint for words, hint in _MEND.items() if words in problem.message), _ELSE),
        file=str(folder / problem.file.removeprefix(f"plugin:{plugin}/")),
        line=problem.line,
    )
