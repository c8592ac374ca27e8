"""The operator's rules of who may call which tools (`extensions.tavern-tools.access`), read and made ready.

Says what a rule means; what follows from all of them together is decided in `authority.py`.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, JsonValue, ValidationError

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.documents import json_path, json_type
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_tools.api.patterns import fits
from tavern_tools.catalog.catalog import NODE_PREFIX
from tavern_tools.catalog.coercion import match_keys
from tavern_tools.catalog.names import quoted
from tavern_tools.catalog.schemas import compiled, is_too_deep, property_names, schema_problems

ACCESS = "access"
"""The setting, without its prefix."""
MAX_PATTERN = 1000
"""How many characters a pattern may have."""
MAX_SECONDS = 366 * 86_400
"""How many seconds a call may wait for a decision."""

_KINDS = get_args(Principal.model_fields["kind"].annotation)
_MAX_TOLD = 20


def _as_rule(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


Pattern = Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)]


class AccessRule(Model):
    """Calls of the tools whose id fits a pattern, with arguments that the JSON Schema allows where there is one."""

    tool: Pattern
    arguments: dict[str, JsonValue] | None = None


_Rules = list[Annotated[AccessRule, BeforeValidator(_as_rule)]]


class AccessRole(Model):
    """What those may do who have the role. Without `allow` it leaves what they may do without it."""

    allow: _Rules | None = None
    deny: _Rules = Field(default_factory=list)
    approve: _Rules = Field(default_factory=list)


class ApprovalTerms(Model):
    """Who decides about calls that wait, for how many seconds they wait, and what is decided then."""

    seconds: float = Field(default=3600.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    default: Literal["approve", "refuse"] = "refuse"
    approvers: list[Pattern] = Field(default_factory=lambda: ["user:*", "system:*"])


class AccessSetting(Model):
    """The whole setting: roles by name, the roles of principals by pattern, and how calls are approved."""

    roles: dict[str, AccessRole] = Field(default_factory=dict)
    principals: dict[Pattern, list[str]] = Field(default_factory=dict)
    approvals: ApprovalTerms = Field(default_factory=ApprovalTerms)


class Condition:
    """A JSON Schema on arguments, made ready on first use. One that is wrong says nothing about any arguments."""

    def __init__(self, schema: dict[str, JsonValue]) -> None:
        self._schema = schema

    @cached_property
    def is_wrong(self) -> bool:
        """Whether the schema is none that can be used."""
        return bool(schema_problems(self._schema, ()))

    @cached_property
    def _names(self) -> dict[str, JsonValue]:
        return dict(property_names(self._schema))

    @cached_property
    def _composed(self) -> Condition:
        return Condition(_composed(self._schema))

    @cached_property
    def _is_valid(self) -> Callable[[Any], bool]:
        return compiled(self._schema).is_valid

    def holds(self, arguments: Mapping[str, JsonValue]) -> bool | None:
        """Return whether the schema allows the arguments, or None where that cannot be said. Never raises.

        Names compare without case, underscores, hyphens and spaces: a tool may call `file_path` what the rule calls
        `filePath`.
        """
        if self.is_wrong or is_too_deep(arguments):
            return None
        try:
            return self._is_valid(match_keys(arguments, self._names)[0])
        except ValueError:  # half a surrogate pair, or no JSON
            return None

    def may_hold(self, arguments: Mapping[str, JsonValue]) -> bool:
        """Return whether the schema allows the arguments or what looks like them, in another normal form of Unicode, or
        where that cannot be said."""
        return self.holds(arguments) is not False or self._composed.holds(_composed(arguments)) is not False


@dataclass(frozen=True)
class Rule:
    """A rule that is ready. `said` is how it is called in reasons."""

    pattern: str
    said: str
    condition: Condition | None = None

    def names(self, tool_id: str) -> bool:
        """Return whether the rule names a tool, exactly as it is written. Tools of node types are named by patterns
        that begin as their ids do: `*` alone does not give every node."""
        if tool_id.startswith(NODE_PREFIX) and not self.pattern.startswith(NODE_PREFIX):
            return False
        return fits(self.pattern, tool_id)

    def covers(self, tool_id: str) -> bool:
        """Return whether the rule is about a tool or one that looks like it: in another case, in full width, or with
        characters that are not seen. For rules that forbid."""
        return fits(self.pattern, tool_id) or fits(look(self.pattern), look(tool_id))

    def allows(self, arguments: Mapping[str, JsonValue]) -> bool:
        """Return whether the arguments are such as the rule allows."""
        return self.condition is None or self.condition.holds(arguments) is True

    def forbids(self, arguments: Mapping[str, JsonValue]) -> bool:
        """Return whether the arguments are such as the rule forbids, or where that cannot be decided."""
        return self.condition is None or self.condition.may_hold(arguments)


@dataclass(frozen=True)
class Role:
    """A role with its rules ready; `allow` is None where it does not say what is allowed."""

    name: str
    allow: tuple[Rule, ...] | None
    deny: tuple[Rule, ...]
    approve: tuple[Rule, ...]


@dataclass(frozen=True)
class Access:
    """The operator's rules, ready. With a `problem`, nobody may call anything until it is mended."""

    roles: Mapping[str, Role]
    principals: tuple[tuple[str, tuple[str, ...]], ...]
    terms: ApprovalTerms
    problem: str | None = None

    def roles_of(self, principal: Principal) -> list[Role]:
        """Return the roles of a principal, each once."""
        name = str(principal)
        found = [role for pattern, roles in self.principals if fits(pattern, name) for role in roles]
        return [self.roles[role] for role in dict.fromkeys(found)]

    def approves(self, principal: Principal) -> bool:
        """Return whether a principal is among those who decide about calls that wait."""
        name = str(principal)
        return any(fits(pattern, name) for pattern in self.terms.approvers)


def _composed(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    return value if text.isascii() else json.loads(unicodedata.normalize("NFC", text))


def look(text: str) -> str:
    """Return a text as the eye takes it: without case, width, and characters that are not seen."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return plain if plain.isascii() else "".join(c for c in plain if unicodedata.category(c) != "Cf")


def read_access(value: Any) -> Access:
    """Return the operator's rules as the setting has them. Problems are reported with their places."""
    problems = access_problems(value)
    if problems:
        more = f" (and {len(problems) - _MAX_TOLD} more)" if len(problems) > _MAX_TOLD else ""
        return closed("; ".join(problems[:_MAX_TOLD]) + more)
    setting = AccessSetting.model_validate(value)
    roles = {name: _role(name, role) for name, role in setting.roles.items()}
    principals = tuple((pattern, tuple(names)) for pattern, names in setting.principals.items())
    return Access(roles, principals, setting.approvals)


def closed(problem: str) -> Access:
    """Return rules by which nobody may call anything."""
    return Access({}, (), ApprovalTerms(approvers=[]), problem)


def access_problems(value: Any) -> list[str]:
    """Return the mistakes of the setting, each with its place."""
    if not isinstance(value, dict):
        return [f"expected an object with roles, principals and approvals, got {json_type(value)}"]
    try:
        setting = AccessSetting.model_validate(value)
    except ValidationError as error:
        found = [f"{_place(*problem['loc'])}: {problem['msg']}" for problem in error.errors(include_url=False)]
        return list(dict.fromkeys(found))
    return [*_wrong_principals(setting), *_wrong_schemas(setting)]


def _wrong_principals(setting: AccessSetting) -> Iterator[str]:
    patterns: list[tuple[tuple[str | int, ...], str]] = [(("principals", p), p) for p in setting.principals]
    patterns += [(("approvals", "approvers", i), p) for i, p in enumerate(setting.approvals.approvers)]
    for place, pattern in patterns:
        kind, colon, name = pattern.partition(":")
        if pattern != "*" and not (colon and name and (kind in _KINDS or "*" in kind or "?" in kind)):
            expected = ", ".join(f"{kind}:ID" for kind in _KINDS)
            yield f"{_place(*place)}: expected {expected} or a pattern of these, got {quoted(pattern)}"
    for pattern, names in setting.principals.items():
        for index, name in enumerate(names):
            if name not in setting.roles:
                near = did_you_mean(name, setting.roles)
                yield f"{_place('principals', pattern, index)}: there is no role {quoted(name)}{near}"


def _wrong_schemas(setting: AccessSetting) -> Iterator[str]:
    for name, role in setting.roles.items():
        for kind in ("allow", "deny", "approve"):
            for index, rule in enumerate(getattr(role, kind) or ()):
                if rule.arguments is not None:
                    place = ("roles", name, kind, index, "arguments")
                    for where, message in schema_problems(rule.arguments, place):
                        yield f"{_place(*where)}: {message}"


def _place(*parts: str | int) -> str:
    return json_path(*parts).removeprefix("$.")


def _role(name: str, role: AccessRole) -> Role:
    said = f"of the role {quoted(name)}"
    return Role(
        name=name,
        allow=_rules(role.allow, said) if role.allow is not None else None,
        deny=_rules(role.deny, said),
        approve=_rules(role.approve, said),
    )


def _rules(rules: list[AccessRule], said: str) -> tuple[Rule, ...]:
    return tuple(make_rule(rule.tool, rule.arguments, said) for rule in rules)


def make_rule(pattern: str, arguments: dict[str, JsonValue] | None, said: str) -> Rule:
    """Return a rule that is ready."""
    return Rule(pattern, f"the rule {quoted(pattern)} {said}", None if arguments is None else Condition(arguments))
