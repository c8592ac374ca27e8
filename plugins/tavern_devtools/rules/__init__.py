"""What `tavern plugins check` looks for: a module for each rule, called like it with `_` for `-`, and a page in
`docs/checks/`.

A module has `check(subject)`, which yields what it finds. A rule that is sometimes wrong is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from tavern_devtools.api.findings import Finding
from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem

RULES = (
    "description",
    "same_version",
    "host_dependency",
    "tests",
    "blocking_call",
    "unused_permission",
    "second_vue",
    "described_nodes",
    "moved_import",
)
"""The modules of what is worth a thought."""
FAULTS = ("stray_hook", "missing_permission", "wheel")
"""Those of what the host refuses, or never uses, when it is too late to tell."""
OF_THE_HOST = ("manifest", "hooks")
"""Those of what the host itself says: faults."""
OF_ROOMS = ("nodes", "tools", "workflows", "agents", "knowledge", "triggers", "front-end")
"""Those that the plugins have which use what is checked (`tavern_check_plugin`); there is no module for them here."""


def findings(subject: Subject, rules: Iterable[str] = RULES) -> Iterator[Finding]:
    """Yield what these rules find."""
    for module in rules:
        check: Callable[[Subject], Iterator[Problem]] = import_module(f"{__name__}.{module}").check
        for problem in check(subject):
            if isinstance(problem, Finding):
                yield problem
            else:
                level = "warning" if module in RULES else "error"
                yield Finding(rule=module.replace("_", "-"), level=level, **problem.model_dump())
