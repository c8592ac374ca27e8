"""Whether a principal may make a call, must wait for somebody to approve it, or may not.

Decides and does nothing: it neither waits nor writes. What the rules are is read in `access.py`.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.names import did_you_mean
from tavern_tools.api.patterns import fits
from tavern_tools.api.toolcalls import ToolErrorType, ToolRule, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.calls.access import ACCESS, Access, Condition, Role, Rule, closed, make_rule, read_access
from tavern_tools.calls.call import ALLOW, Call, Verdict
from tavern_tools.catalog.catalog import NODE_PREFIX, Tool
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.permissions import service_and_method

SETTING = "extensions.tavern-tools.access"

_RULINGS = 8192
_SCOPE_RULES = 256
_KINDS_THAT_MAY_ALL = ("user", "system")


@dataclass(frozen=True, slots=True)
class _Ruling:
    """What holds for one principal and one tool, whatever the arguments: a verdict, or else what to ask of them.

    `allow` is None where the arguments do not matter. `asks` are the rules by which somebody has to approve; none
    where the principal may approve. Keeps no tool, so that the tools of a catalog before this one can go.
    """

    verdict: Verdict | None
    approves: bool
    deny: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] | None = None
    asks: tuple[Rule, ...] = ()


class Authority:
    """Decides about calls by the operator's rules as they are at each moment.

    Without rules, users and the host may call every tool, agents those that their scope names, plugins all but the
    tools of node types. A role's `allow` says instead what its principals may call; any `deny` wins. While the rules
    are invalid nobody may call anything, since what they were meant to forbid is unknown: they are mended by the
    operator's commands and pages, which are no tools.
    """

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._settings = context.settings
        self._revision = -1
        self._read: tuple[list[str], dict[str, JsonValue]] | None = None
        self._access = read_access({})
        self._rulings: dict[tuple[int, str, str, tuple[str, ...] | None], _Ruling] = {}
        self._scope_rules: OrderedDict[bytes, Rule] = OrderedDict()

    def authorise(self, call: Call) -> Verdict:
        """Return whether a call may be made, or has to be approved. Raises `ToolFailure` for one that is denied."""
        verdict = self.decide(call.tool, call.request.arguments, call.context.principal, call.scope)
        if call.inventory is not None and verdict.kind != "deny":
            within = self.decide(call.tool, call.request.arguments, call.context.principal, call.inventory)
            verdict = verdict if within.kind == "allow" else within
        if verdict.kind == "deny":
            raise ToolFailure(ToolErrorType.PERMISSION_DENIED, verdict.reason)
        return verdict

    def decide(
        self, tool: Tool, arguments: dict[str, JsonValue], principal: Principal, scope: ToolScope | None
    ) -> Verdict:
        """Return the verdict on a call with these arguments, as the tool gets them. Never raises."""
        ruling = self._ruling_of(tool, principal, scope)
        if ruling.verdict is None:
            return self._weigh(ruling, tool, arguments, principal, scope)
        if scope is not None and scope.approval and ruling.verdict is ALLOW and not ruling.approves:
            return self._weigh(ruling, tool, arguments, principal, scope)
        return ruling.verdict

    def may_call(self, tool: Tool, principal: Principal, scope: ToolScope | None) -> bool:
        """Return whether a principal may call a tool, with some arguments at least."""
        verdict = self._ruling_of(tool, principal, scope).verdict
        return verdict is None or verdict.kind != "deny"

    def _ruling_of(self, tool: Tool, principal: Principal, scope: ToolScope | None) -> _Ruling:
        if self._settings.revision != self._revision:
            self._refresh()
        allowed = None if scope is None or scope.allowed is None else tuple(scope.allowed)
        key = (tool.number, principal.kind, principal.id, allowed)
        ruling = self._rulings.get(key)
        if ruling is None:
            ruling = self._ruling(tool, principal, allowed)
            if len(self._rulings) >= _RULINGS:
                self._rulings.clear()
            self._rulings[key] = ruling
        return ruling

    def may_decide(self, principal: Principal, tool_id: str, arguments: Mapping[str, JsonValue] | None = None) -> bool:
        """Return whether a principal may approve calls of a tool: it is an approver, and its own roles let it call
        the tool, with these `arguments` where they are given."""
        if self._settings.revision != self._revision:
            self._refresh()
        access = self._access
        if access.problem is not None or not access.approves(principal):
            return False
        roles = access.roles_of(principal)
        denied = [rule for role in roles for rule in role.deny if rule.covers(tool_id)]
        if any(rule.condition is None or (arguments is not None and rule.forbids(arguments)) for rule in denied):
            return False
        named = _named(roles, tool_id)
        return named is None or any(arguments is None or rule.allows(arguments) for rule in named)

    # --- the rules --------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Take over the rules where they changed. Those of a project are not asked: it gives itself no rights."""
        revision = self._settings.revision  # before reading: what changes meanwhile counts the next time
        read = (self._settings.left_out(ACCESS), self._settings.layers(ACCESS))
        if read != self._read:
            left_out, layers = read
            self._access = _access_of(left_out, layers)
            self._rulings.clear()
            self._read = read
            with contextlib.suppress(PermissionDenied):  # this plugin is on its way out
                self._tell("project" in layers or "project" in left_out)
        self._revision = revision

    def _tell(self, is_in_project: bool) -> None:
        if is_in_project:
            message = f"the project's setting {SETTING} is not used: a project does not say who may call what"
            self._context.hooks.report(self._context.plugin, message, hint="put it into the operator's host.yaml")
        if self._access.problem is not None:
            message = f"nobody may call a tool until {SETTING} is right: {self._access.problem}"
            self._context.hooks.report(self._context.plugin, message, hint=f"mend it: tavern settings set {SETTING}")

    # --- a ruling ---------------------------------------------------------------------------------

    def _ruling(self, tool: Tool, principal: Principal, allowed: tuple[str, ...] | None) -> _Ruling:
        """Return the ruling on a tool for a principal and a scope, whatever the arguments are."""
        access, tool_id = self._access, tool.definition.id
        if access.problem is not None:
            why = f": {access.problem}" if principal.kind == "user" else ", which was reported to the operator"
            return _denied(f"nobody may call a tool: {SETTING} is not right{why}")
        may_not = f"{principal} may not call {tool_id}"
        if allowed is not None and not any(fits(pattern, tool_id) for pattern in allowed):
            near = did_you_mean(tool_id, allowed)
            return _denied(f'the tool "{tool_id}" is not one of those that may be called here{near}')
        roles = access.roles_of(principal)
        deny = tuple(rule for role in roles for rule in role.deny if rule.covers(tool_id))
        for rule in deny:
            if rule.condition is None:
                return _denied(f"{may_not}: {rule.said} denies it")
        allow = _named(roles, tool_id)
        if allow == ():
            names = ", ".join(role.name for role in roles)
            return _denied(f"{may_not}: none of its roles ({names}) allows it")
        if allow is None and (unnamed := _why_not_unnamed(tool_id, principal, allowed)) is not None:
            return _denied(f"{may_not}: {unnamed}")
        if principal.kind not in _KINDS_THAT_MAY_ALL and (lent := _why_not_lent(tool, principal, allow)) is not None:
            return _denied(f"{may_not}: {lent}")
        if allow is not None and any(rule.condition is None for rule in allow):
            allow = None
        approves = principal.kind == "user" and access.approves(principal)
        asks = () if approves else _asks(tool, roles)
        verdict = None if deny or allow is not None or asks else ALLOW
        return _Ruling(verdict, approves, deny, allow, asks)

    # --- a call -----------------------------------------------------------------------------------

    def _weigh(
        self,
        ruling: _Ruling,
        tool: Tool,
        arguments: dict[str, JsonValue],
        principal: Principal,
        scope: ToolScope | None,
    ) -> Verdict:
        """Return the verdict on a call by the rules that ask about its arguments."""
        tool_id = tool.definition.id
        may_not = f"{principal} may not call {tool_id} with these arguments"
        arguments = tool.parameters.complete(arguments)
        for rule in ruling.deny:
            if rule.forbids(arguments):
                return Verdict(
                    "deny", f"{principal} may not call {tool_id} with these arguments: {rule.said} denies it"
                )
        if ruling.allow is not None and not any(rule.allows(arguments) for rule in ruling.allow):
            said = " and ".join(rule.said for rule in ruling.allow)
            return Verdict("deny", f"{may_not}: {said} allows others")
        if ruling.approves:
            return ALLOW
        for rule in ruling.asks:
            if rule.forbids(arguments):
                return self._approval(rule)
        for asked in scope.approval if scope is not None else ():
            rule = self._scope_rule(asked)
            if rule.covers(tool_id) and rule.forbids(arguments):
                return self._approval(rule)
        return ALLOW

    def asking(self, seconds: JsonValue) -> Verdict:
        """Return the verdict on a call that asks a person: it waits for the answer, by default as long as others for
        an approval. Nobody answers by default."""
        if self._settings.revision != self._revision:
            self._refresh()
        wait = seconds if isinstance(seconds, int | float) else self._access.terms.seconds
        return Verdict("approve", "it asks a person", float(wait))

    def _approval(self, rule: Rule) -> Verdict:
        terms = self._access.terms
        return Verdict("approve", f"{rule.said} asks for it", terms.seconds, terms.default)

    def _scope_rule(self, asked: ToolRule) -> Rule:
        """Return a rule of a caller, ready; those that were used last are remembered."""
        key = to_json([asked.tool, asked.arguments])
        rule = self._scope_rules.get(key)
        if rule is None:
            rule = self._scope_rules[key] = make_rule(asked.tool, asked.arguments, "of the caller")
            if len(self._scope_rules) > _SCOPE_RULES:
                self._scope_rules.popitem(last=False)
        self._scope_rules.move_to_end(key)
        return rule


def _access_of(left_out: list[str], layers: dict[str, JsonValue]) -> Access:
    unusable = [layer for layer in left_out if layer != "project"]
    if unusable:
        return closed(f"the {unusable[0]}'s value cannot be read; tavern plugins list says why")
    return read_access(layers.get("environment", layers.get("operator", {})))


def _denied(reason: str) -> _Ruling:
    return _Ruling(Verdict("deny", reason), approves=False)


def _named(roles: list[Role], tool_id: str) -> tuple[Rule, ...] | None:
    """Return the rules that allow a tool, or None where no role says what is allowed."""
    if all(role.allow is None for role in roles):
        return None
    return tuple(rule for role in roles for rule in role.allow or () if rule.names(tool_id))


def _why_not_unnamed(tool_id: str, principal: Principal, allowed: tuple[str, ...] | None) -> str | None:
    """Return why a principal may not call a tool of which no role says whether it may, or None where it may."""
    if principal.kind in _KINDS_THAT_MAY_ALL:
        return None
    if principal.kind == "plugin":
        is_node = tool_id.startswith(NODE_PREFIX)
        return (
            f"tools of node types are for plugins only where the operator names them in {SETTING}" if is_node else None
        )
    if principal.kind != "agent":
        return "there are no principals of this kind"
    is_listed = any(Rule(pattern, "").names(tool_id) for pattern in allowed or ())
    return None if is_listed else "neither its profile nor the operator lists it"


def _why_not_lent(tool: Tool, principal: Principal, allow: tuple[Rule, ...] | None) -> str | None:
    """Return why a tool would give its caller a right that it does not have, or None where it does not.

    What a plugin lacks of a method's permission is found out where the method is called.
    """
    if tool.definition.kind != "service":
        return None
    service, _ = service_and_method(tool.definition.implementation)
    info = tool.method_info
    if service == TOOL_MANAGER.name and (info is None or info.permission is not None):
        return "it calls tools itself, past what its caller may call"
    if principal.kind != "agent" or (lent := tool.lent_permission) is None:
        return None
    if any(rule.pattern == tool.definition.id for rule in allow or ()):
        return None
    return f"a tool of the project does not give the permission {lent}: the operator can, by its whole id in {SETTING}"


def _asks(tool: Tool, roles: list[Role]) -> tuple[Rule, ...]:
    """Return the rules by which a call has to be approved: the operator's, then the tool's own."""
    tool_id, asked = tool.definition.id, tool.definition.requires_approval
    rules = [rule for role in roles for rule in role.approve if rule.covers(tool_id)]
    if asked is not False:
        rules.append(Rule(tool_id, f"the tool {tool_id}", Condition(asked) if isinstance(asked, dict) else None))
    return tuple(rules)
