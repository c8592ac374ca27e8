"""What is imported is where it is today: contracts moved to the plugins that they are of."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem

_BEFORE = "tavern_host.contracts"
MODULES = {
    "tavern_host.common": "log_context proxies queries redaction",
    "tavern_host.sdk": "conditions",
    "tavern_host.storage": "databases retried_writes",
    "tavern_operations.api": "advisories",
    "tavern_agents.api": "agents callaccounts histories memory profilefiles recordings",
    "tavern_assistant.api": "assistant",
    "tavern_engine.api": "clusters runs",
    "tavern_knowledge.api": "knowledge pictures",
    "tavern_llm.api": "llm spans",
    "tavern_scripts.api": "code_mode scripts scripttools",
    "tavern_tools.api": "fences json_positions macros observations projectfiles protocols systemtools tasks thoughts "
    "toolcalls toolfiles",
    "tavern_workflows.api": "dataflow loops workflow_history",
    "tavern_worlds.api": "scenes",
}
"""Modules that moved with all that is in them, by the package in which each has the same name."""
RENAMED = {"hook_names": "manifest", "off_loop": "documents", "work": "accounts"}
"""Modules that became part of another one of the same package."""
NAMES = {
    ("clusters", "tavern_host.contracts.executions"): "RemoteWork",
    ("executions", "tavern_engine.api.executions"): "EXECUTION_ENGINE ExecutionEngine Resumed RunFilter RunQueue "
    "RunSummary",
    ("metrics", "tavern_operations.api.metrics"): "METRICS Metrics",
    ("nodes", "tavern_engine.api.nodes"): "NODE_MANAGER NodeManager",
    ("redaction", "tavern_workflows.api.redaction"): "masked_document",
    ("tools", "tavern_tools.api.tools"): "ACTIONS ExpandedPrompt TOOL_MANAGER ToolFilter ToolManager ToolQuery "
    "ToolStatistics",
    ("workflows", "tavern_workflows.api.workflows"): "ERROR_OUTPUT GROUP_INPUT GROUP_OUTPUT LOOP_ZONE LayoutSize "
    "NODE_GROUP Placed RevisionKind StoredWorkflow WORKFLOW_MANAGER WorkflowDraft WorkflowLayout WorkflowManager "
    "WorkflowMatch WorkflowProblem WorkflowRevision WorkflowSummary WorkflowUse workflow_id_of",
    ("host_api", "tavern_agents.api.answers"): "AfterQuery AgentRunQuery BranchQuery IdQuery MemoryQuery OfQuery",
    ("host_api", "tavern_engine.api.answers"): "Executions InputValues NodesReloaded OutputQuery PromptAccepted "
    "PromptNodeState PromptState PromptSummary RunPage RunQuery RunStarted SystemStats",
    ("host_api", "tavern_knowledge.api.answers"): "ReplaceQuery RevisionQuery",
    ("host_api", "tavern_llm.api.answers"): "Models",
    ("host_api", "tavern_tools.api.answers"): "ApprovalPage TaskPage TaskQuery ToolResults WaitQuery",
    ("host_api", "tavern_worlds.api.answers"): "Woken",
}
"""Names that moved out of a module, by that and by where they are now."""

CALLED = {
    ("off_loop", "off_loop"): "to_thread_if_large",
    ("documents", "carried_json"): "wire_json",
    ("wire", "carried"): "wire_value",
}
"""What names of a module are called now."""

_MODULES = {
    **{module: f"{package}.{module}" for package, modules in MODULES.items() for module in modules.split()},
    **{module: f"{_BEFORE}.{into}" for module, into in RENAMED.items()},
}
_NAMES = {(module, name): home for (module, home), names in NAMES.items() for name in names.split()}


def check(subject: Subject) -> Iterator[Problem]:
    """Yield the imports of what is elsewhere by now."""
    for path, tree in subject.modules.items():
        for line, module, name in (one for node in ast.walk(tree) for one in _imported(node)):
            home, called = _NAMES.get((module, name)) or _MODULES.get(module), CALLED.get((module, name))
            if home is not None or called is not None:
                home = home or f"{_BEFORE}.{module}"
                what = f"{module}.{name}" if called is not None or (module, name) in _NAMES else module
                statement = f"from {home} import {called or name}" if name else f"import {home}"
                moved = f"{_BEFORE}.{what} is called {home}.{called}" if called else f"{_BEFORE}.{what} moved to {home}"
                hint, message = f"write {statement}", moved
                yield Problem(message=message, hint=hint, file=subject.shown(path), line=line)


def _imported(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield what a statement imports of the contracts: its line, a module there, and a name in it or none."""
    if isinstance(node, ast.Import):
        inner = (one.name.removeprefix(f"{_BEFORE}.") for one in node.names if one.name.startswith(f"{_BEFORE}."))
        yield from ((node.lineno, module, "") for module in inner)
    elif isinstance(node, ast.ImportFrom) and node.module == _BEFORE:
        yield from ((node.lineno, one.name, "") for one in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{_BEFORE}."):
        yield from ((node.lineno, node.module.removeprefix(f"{_BEFORE}."), one.name) for one in node.names)
