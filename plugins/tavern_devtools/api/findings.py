"""A plugin that is checked, and what is found wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

from pydantic import Field, JsonValue, ValidationError

from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.wire import Model

M = TypeVar("M", bound=Model)


class CheckedPlugin(Model):
    """A plugin that is checked: its name, the absolute path of its folder, its manifest as it is written, and by field
    of that the absolute paths of the folders of files that it has. One that is not loaded here is judged by its files
    alone: what its code registers is not known."""

    name: str
    root: str
    manifest: dict[str, JsonValue] = Field(default_factory=dict)
    folders: dict[str, str] = Field(default_factory=dict)
    is_loaded: bool = False

    def part(self, field: str, model: type[M]) -> M | None:
        """Return a part of the manifest; None where it has none that is right, which the host says."""
        try:
            return model.model_validate(self.manifest.get(field))
        except ValidationError:
            return None


class Finding(Problem):
    """What is wrong with a plugin, and the rule that says so. An `error` is what the host refuses or never uses; a
    `warning` is worth a thought."""

    rule: str | None = None
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.rule}]" if self.rule else super().__str__()


def found_by(rule: str, problems: Iterable[Problem], hint: str | None = None) -> list[Finding]:
    """Return problems as the findings of a rule; `hint` is for those that say no mend. One with a true `warning`, or of
    the severity or level `warning`, is a warning."""
    found = []
    for one in problems:
        values = {name: getattr(one, name) for name in Problem.model_fields}
        is_warning = bool(getattr(one, "warning", False)) or getattr(one, "level", "error") == "warning"
        values["hint"] = one.hint or hint
        found.append(Finding(rule=rule, level="warning" if is_warning else "error", **values))
    return found
