"""What `tavern plugins check` looks for beyond what the host itself says: a module for each rule, called like it with
`_` for `-`, and a page in `docs/checks/`.

A module has `check(subject)`, which yields what it finds. A rule that is sometimes wrong is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from tavern_devtools.rules.subject import Finding, Subject
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
)
"""The modules."""


def findings(subject: Subject) -> Iterator[Finding]:
    """Yield what all rules find."""
    for module in RULES:
        check: Callable[[Subject], Iterator[Problem]] = import_module(f"{__name__}.{module}").check
        for problem in check(subject):
            yield Finding(rule=module.replace("_", "-"), **problem.model_dump())
