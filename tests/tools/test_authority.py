"""Who may call which tool, by the operator's rules and without any."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from known_methods import known_method

from tavern_host import Host
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.contracts.toolcalls import ToolRule, ToolScope
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.calls.authority import ALLOW, Authority, Verdict
from tavern_tools.catalog.catalog import Tool

KEY = "extensions.tavern-tools.access"
PATH_IS_SAFE = {"properties": {"path": {"pattern": "^safe/"}}, "required": ["path"]}

Open = Callable[..., AbstractAsyncContextManager["Bench"]]


class Bench:
    """A running host with the authority of its tools."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.authority = Authority(host._manager.active["tavern-tools"].context)

    def decide(
        self, who: str, what: Tool | str, scope: ToolScope | list[str] | None = None, **arguments: Any
    ) -> Verdict:
        limit = ToolScope(allowed=scope) if isinstance(scope, list) else scope
        wanted = what if isinstance(what, Tool) else tool(what)
        return self.authority.decide(wanted, arguments, principal(who), limit)

    def kind(self, who: str, what: Tool | str, scope: ToolScope | list[str] | None = None, **arguments: Any) -> str:
        return self.decide(who, what, scope, **arguments).kind

    async def save(self, access: Any) -> None:
        await self.host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-tools", values={KEY: access}))

    def problems(self) -> list[str]:
        return [problem.message for problem in self.host.plugin("tavern-tools").problems]


def principal(who: str) -> Principal:
    kind, _, name = who.partition(":")
    return Principal(kind=kind, id=name)  # type: ignore[arg-type]


def tool(
    tool_id: str, *, service: str = "plugins", method: str = "get", plugin: str | None = "acme", **more: Any
) -> Tool:
    implementation = ToolImplementation(kind="service", service=service, method=method)
    if tool_id.startswith("node:"):
        implementation = ToolImplementation(kind="node", node_type=tool_id.removeprefix("node:"))
    definition = ToolDefinition(id=tool_id, implementation=implementation, plugin=plugin, **more)
    return Tool(definition, method=known_method(service, method) if definition.kind == "service" else None)


@pytest.fixture
def opened(shared_hosts: Callable[..., Awaitable[Any]]) -> Open:
    """Return a function that gives the module's host with these rules of the operator."""

    @asynccontextmanager
    async def with_rules(access: Any = None) -> AsyncIterator[Bench]:
        bench = Bench((await shared_hosts()).host)
        await bench.save(access)
        yield bench
        await bench.save(None)

    return with_rules


@pytest.fixture
def own(tmp_path: Path) -> Open:
    """Return a function that opens a host with these rules from the environment, and those of a project."""

    @asynccontextmanager
    async def open_host(access: Any = None, project: Any = None) -> AsyncIterator[Bench]:
        root = tmp_path / "project"
        root.mkdir(exist_ok=True)
        if project is not None:
            (root / "tavern.yaml").write_text(f"settings:\n  {KEY}: {project}\n")
        async with Host(root, settings={} if access is None else {KEY: access}) as host:
            yield Bench(host)

    return open_host


# --- without rules ------------------------------------------------------------------------------------


async def test_without_rules_users_and_the_host_call_everything_and_others_what_they_were_given(opened: Open) -> None:
    async with opened() as bench:
        for who in ("user:operator", "user:guest", "system:host"):
            assert bench.decide(who, "kb:Query") is ALLOW
            assert bench.decide(who, "node:core:Text") is ALLOW
        assert bench.decide("plugin:acme", "kb:Query") is ALLOW
        assert bench.decide("plugin:acme", "node:core:Text", ["node:*"]).kind == "deny"
        assert bench.decide("agent:writer", "kb:Query", ["kb:*"]) is ALLOW
        assert bench.decide("agent:writer", "kb:Query", ["kb:Quer?", "x"]) is ALLOW
        denied = bench.decide("agent:writer", "kb:Query")
        assert denied == Verdict(
            "deny", "agent:writer may not call kb:Query: neither its profile nor the operator lists it"
        )
        assert bench.kind("agent:writer", "kb:Query", ToolScope()) == "deny"
        assert bench.kind("agent:writer", "kb:Query", []) == "deny"
        assert bench.kind("agent:writer", "kb:Query", ["KB:*", "kb:query", "ｋｂ:*", "kb"]) == "deny"


async def test_a_star_does_not_give_an_agent_every_node(opened: Open) -> None:
    async with opened() as bench:
        assert bench.decide("agent:writer", "node:core:Text", ["*"]).kind == "deny"
        assert bench.decide("agent:writer", "node:core:Text", ["*", "node:core:*"]) is ALLOW


async def test_a_scope_limits_everybody(opened: Open) -> None:
    async with opened() as bench:
        for who in ("user:operator", "system:host", "plugin:acme"):
            denied = bench.decide(who, "kb:Query", ["system:*"])
            assert denied == Verdict("deny", 'the tool "kb:Query" is not one of those that may be called here')
            assert bench.decide(who, "kb:Query", ["kb:*"]) is ALLOW


async def test_nobody_knows_what_is_no_principal(opened: Open) -> None:
    async with opened() as bench:
        odd = Principal.model_construct(kind="User", id="operator")  # type: ignore[arg-type]
        assert bench.authority.decide(tool("kb:Query"), {}, odd, None).kind == "deny"


# --- what a tool may lend -----------------------------------------------------------------------------


async def test_a_tool_of_the_project_gives_an_agent_no_right(opened: Open) -> None:
    rules = {
        "roles": {"all": {"allow": ["*"]}, "one": {"allow": ["my:run"]}},
        "principals": {"agent:wide": ["all"], "agent:exact": ["one"]},
    }
    acting = tool("my:run", service="executionEngine", method="run", plugin=None)
    reading = tool("my:get", plugin=None)
    async with opened(rules) as bench:
        denied = bench.decide("agent:writer", acting, ["my:run"])
        assert denied.kind == "deny"
        assert "does not give the permission services.use:executionEngine:execute" in denied.reason
        assert bench.decide("agent:wide", acting).kind == "deny"
        assert bench.decide("agent:exact", acting) is ALLOW
        assert bench.decide("user:operator", acting) is ALLOW
        assert bench.decide("agent:writer", reading, ["my:get"]) is ALLOW
        of_plugin = tool("my:run", service="executionEngine", method="run")
        assert bench.decide("agent:writer", of_plugin, ["my:run"]) is ALLOW
        unknown = tool("my:run", service="nobodys", method="x", plugin=None)
        assert bench.decide("agent:writer", unknown, ["my:run"]).kind == "deny"


@pytest.mark.parametrize("method", ["call", "call_all", "call_text", "decide", "nothing"])
async def test_a_tool_that_calls_tools_is_no_way_past_a_scope(opened: Open, method: str) -> None:
    rules = {"roles": {"all": {"allow": ["*", "deputy:x"]}}, "principals": {"agent:wide": ["all"]}}
    deputy = tool("deputy:x", service="toolManager", method=method)
    async with opened(rules) as bench:
        for who in ("agent:writer", "agent:wide", "plugin:acme"):
            denied = bench.decide(who, deputy, ["*"])
            assert (denied.kind, "past what its caller may call" in denied.reason) == ("deny", True)
        assert bench.decide("user:operator", deputy) is ALLOW
        assert bench.decide("agent:writer", tool("d:x", service="toolManager", method="describe"), ["*"]) is ALLOW


# --- roles --------------------------------------------------------------------------------------------


async def test_a_role_says_what_its_principals_may_call_and_what_not(opened: Open) -> None:
    rules = {
        "roles": {
            "reader": {"allow": ["FileOperator.*", {"tool": "kb:*"}], "deny": ["FileOperator.Delete*"]},
            "careful": {"deny": ["kb:Drop"]},
            "none": {"allow": []},
        },
        "principals": {"agent:w*": ["reader"], "*": ["careful"], "user:guest": ["none"]},
    }
    async with opened(rules) as bench:
        assert bench.decide("agent:writer", "FileOperator.ReadFile") is ALLOW
        assert bench.decide("agent:writer", "system:time", ["*"]).reason.endswith(
            "none of its roles (reader, careful) allows it"
        )
        assert bench.decide("agent:writer", "FileOperator.DeleteFile").reason == (
            "agent:writer may not call FileOperator.DeleteFile: "
            'the rule "FileOperator.Delete*" of the role "reader" denies it'
        )
        assert bench.kind("agent:writer", "kb:Drop") == "deny"
        assert bench.kind("agent:writer", "kb:Query", ["system:*"]) == "deny"
        assert bench.kind("user:operator", "kb:Drop") == "deny"
        assert bench.decide("user:operator", "system:time") is ALLOW
        assert bench.kind("user:guest", "system:time") == "deny"
        assert bench.decide("agent:other", "kb:Query", ["kb:*"]) is ALLOW
        assert bench.kind("agent:other", "kb:Drop", ["kb:*"]) == "deny"
        assert bench.kind("plugin:acme", "kb:Drop") == "deny"
        assert bench.kind("system:host", "kb:Drop") == "deny"


async def test_rules_look_at_arguments(opened: Open) -> None:
    rules = {
        "roles": {
            "safe": {"allow": [{"tool": "FileOperator.*", "arguments": PATH_IS_SAFE}]},
            "quiet": {"deny": [{"tool": "*", "arguments": {"required": ["loud"]}}]},
        },
        "principals": {"agent:*": ["safe"], "user:*": ["quiet"]},
    }
    async with opened(rules) as bench:
        assert bench.decide("agent:writer", "FileOperator.ReadFile", path="safe/a") is ALLOW
        denied = bench.decide("agent:writer", "FileOperator.ReadFile", path="x/safe/a")
        assert denied.reason == (
            "agent:writer may not call FileOperator.ReadFile with these arguments: "
            'the rule "FileOperator.*" of the role "safe" allows others'
        )
        assert bench.kind("agent:writer", "FileOperator.ReadFile") == "deny"
        assert bench.decide("user:operator", "a:b", quiet=1) is ALLOW
        assert bench.kind("user:operator", "a:b", loud=1) == "deny"


async def test_arguments_that_nobody_can_look_at_are_forbidden_and_not_allowed(opened: Open) -> None:
    text = {"properties": {"path": {"pattern": "^safe"}}}
    rules = {
        "roles": {
            "a": {"allow": [{"tool": "*", "arguments": text}]},
            "d": {"deny": [{"tool": "*", "arguments": text}]},
        },
        "principals": {"agent:*": ["a"], "user:*": ["d"]},
    }
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    async with opened(rules) as bench:
        for odd in ("\ud800", deep):
            assert bench.kind("agent:writer", "a:b", path=odd) == "deny"
            assert bench.kind("user:operator", "a:b", path=odd) == "deny"


async def test_what_is_denied_is_denied_however_it_is_written(opened: Open) -> None:
    rules = {
        "roles": {"r": {"deny": ["FileOperator.*"], "allow": ["*"]}, "s": {"allow": ["FileOperator.*"]}},
        "principals": {"user:*": ["r"], "agent:*": ["s"]},
    }
    async with opened(rules) as bench:
        for odd in ("fileoperator.Write", "ＦileOperator.Write", "File\u200bOperator.Write", "FILEOPERATOR．x"):
            assert bench.kind("user:operator", odd) == "deny"
            assert bench.kind("agent:writer", odd) == "deny"
        assert bench.decide("user:operator", "FileOperators:x") is ALLOW


# --- approval -----------------------------------------------------------------------------------------


async def test_a_tool_may_ask_that_somebody_approves(opened: Open) -> None:
    always, sometimes = tool("a:b", requires_approval=True), tool("a:c", requires_approval={"required": ["force"]})
    async with opened() as bench:
        assert bench.decide("agent:writer", always, ["*"]) == Verdict(
            "approve", "the tool a:b asks for it", 3600.0, "refuse"
        )
        assert bench.kind("plugin:acme", always) == "approve"
        assert bench.kind("system:host", always) == "approve"
        assert bench.decide("user:operator", always) is ALLOW
        assert bench.decide("agent:writer", sometimes, ["*"]) is ALLOW
        assert bench.kind("agent:writer", sometimes, ["*"], force=False) == "approve"


async def test_the_operator_says_what_waits_for_whom_and_how_long(opened: Open) -> None:
    rules = {
        "roles": {"r": {"approve": [{"tool": "FileOperator.*", "arguments": {"required": ["path"]}}]}},
        "principals": {"*": ["r"]},
        "approvals": {"seconds": 60, "default": "approve", "approvers": ["user:operator"]},
    }
    async with opened(rules) as bench:
        reason = 'the rule "FileOperator.*" of the role "r" asks for it'
        asked = Verdict("approve", reason, 60.0, "approve")
        assert bench.decide("agent:writer", "FileOperator.ReadFile", ["*"], path="a") == asked
        assert bench.decide("agent:writer", "FileOperator.ListRoot", ["*"]) is ALLOW
        assert bench.decide("user:guest", "FileOperator.ReadFile", path="a") == asked
        assert bench.decide("user:operator", "FileOperator.ReadFile", path="a") is ALLOW


async def test_a_caller_may_ask_for_approval_of_its_own_calls(opened: Open) -> None:
    scope = ToolScope(allowed=["*"], approval=[ToolRule(tool="kb:*", arguments={"required": ["drop"]})])
    wrong = ToolScope(allowed=["*"], approval=[ToolRule(tool="kb:*", arguments={"type": "nonsense"})])
    async with opened() as bench:
        assert bench.decide("agent:writer", "kb:Query", scope, drop=1) == Verdict(
            "approve", 'the rule "kb:*" of the caller asks for it', 3600.0, "refuse"
        )
        assert bench.decide("agent:writer", "kb:Query", scope) is ALLOW
        assert bench.decide("agent:writer", "a:b", scope, drop=1) is ALLOW
        assert bench.decide("user:operator", "kb:Query", scope, drop=1) is ALLOW
        assert bench.kind("agent:writer", "kb:Query", wrong) == "approve"


async def test_a_denial_comes_before_an_approval(opened: Open) -> None:
    rules = {"roles": {"r": {"deny": ["a:b"], "approve": ["*"]}}, "principals": {"*": ["r"]}}
    async with opened(rules) as bench:
        assert bench.kind("agent:writer", tool("a:b", requires_approval=True), ["*"]) == "deny"
        assert bench.kind("agent:writer", "a:c", ["*"]) == "approve"


async def test_who_approves_may_call_the_tool_itself(opened: Open) -> None:
    rules = {
        "roles": {
            "guest": {"allow": ["kb:*", {"tool": "f:*", "arguments": PATH_IS_SAFE}], "deny": ["kb:Drop"]},
            "boss": {},
        },
        "principals": {"user:guest": ["guest"], "agent:boss": ["boss"]},
        "approvals": {"approvers": ["user:*", "agent:boss"]},
    }
    async with opened(rules) as bench:
        may = bench.authority.may_decide
        assert may(principal("user:operator"), "kb:Drop")
        assert may(principal("user:guest"), "kb:Query")
        assert not may(principal("user:guest"), "kb:Drop")
        assert not may(principal("user:guest"), "system:time")
        assert may(principal("user:guest"), "f:x") and may(principal("user:guest"), "f:x", {"path": "safe/a"})
        assert not may(principal("user:guest"), "f:x", {"path": "a"})
        assert may(principal("agent:boss"), "kb:Drop")
        for nobody in ("agent:writer", "plugin:acme", "system:host"):
            assert not may(principal(nobody), "kb:Query")


async def test_without_rules_people_and_the_host_approve(opened: Open) -> None:
    async with opened() as bench:
        for who, may in {"user:x": True, "system:host": True, "agent:a": False, "plugin:p": False}.items():
            assert bench.authority.may_decide(principal(who), "kb:Query") is may


# --- where rules come from ----------------------------------------------------------------------------


async def test_rules_hold_from_the_next_call_on(opened: Open) -> None:
    async with opened() as bench:
        assert bench.decide("user:operator", "kb:Drop") is ALLOW
        await bench.save({"roles": {"r": {"deny": ["kb:*"]}}, "principals": {"*": ["r"]}})
        assert bench.kind("user:operator", "kb:Drop") == "deny"
        await bench.save(None)
        assert bench.decide("user:operator", "kb:Drop") is ALLOW


async def test_a_project_gives_itself_no_rights_and_takes_none(own: Open) -> None:
    widened = '{"roles": {"r": {"allow": ["*"]}}, "principals": {"agent:*": ["r"]}, "approvals": {"approvers": ["*"]}}'
    async with own(project=widened) as bench:
        assert bench.kind("agent:writer", "kb:Query") == "deny"
        assert not bench.authority.may_decide(principal("agent:writer"), "kb:Query")
        assert any("a project does not say who may call what" in message for message in bench.problems())


async def test_the_environment_comes_before_the_operators_file(own: Open) -> None:
    async with own({"roles": {"r": {"deny": ["a:*"]}}, "principals": {"*": ["r"]}}) as bench:
        await bench.save({})
        assert bench.kind("user:operator", "a:b") == "deny"


WRONG: Any = [
    ([], "expected an object with roles, principals and approvals, got an array"),
    ("x", "got text"),
    ({"rolles": {}}, "rolles: Extra inputs are not permitted"),
    ({"roles": {"r": {"allow": [{"tools": "x"}]}}}, "roles.r.allow[0].tool: Field required"),
    ({"roles": {"r": {"deny": [""]}}}, "roles.r.deny[0].tool: String should have at least 1 character"),
    ({"roles": {"r": {"deny": ["*" * 10_000]}}}, "roles.r.deny[0].tool: String should have at most 1000"),
    ({"roles": {"r": {"allow": "*"}}}, "roles.r.allow: Input should be a valid list"),
    (
        {"roles": {"r": {"deny": [{"tool": "x", "arguments": {"type": "strin"}}]}}},
        "roles.r.deny[0].arguments.type: expected one of",
    ),
    (
        {"roles": {"r": {"deny": [{"tool": "x", "arguments": {"properties": {"a": {"pattern": "(?=x)"}}}}]}}},
        "roles.r.deny[0].arguments.properties.a.pattern: the pattern",
    ),
    ({"roles": {"writer": {}}, "principals": {"*": ["writr"]}}, 'there is no role "writr" (did you mean writer?)'),
    ({"principals": {"agents:*": []}}, "expected user:ID, agent:ID, plugin:ID, system:ID or a pattern"),
    ({"principals": {"writer": []}}, 'got "writer"'),
    ({"approvals": {"seconds": 0}}, "approvals.seconds: Input should be greater than 0"),
    ({"approvals": {"default": "yes"}}, "approvals.default: Input should be 'approve' or 'refuse'"),
    ({"approvals": {"approvers": ["operator"]}}, "approvals.approvers[0]: expected user:ID"),
]


async def test_while_rules_are_wrong_nobody_calls_anything(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    with Failures() as failures:
        for access, problem in WRONG:
            with failures.row(problem):
                async with opened(access) as bench:
                    told = bench.decide("user:operator", "kb:Query")
                    assert (told.kind, problem in told.reason) == ("deny", True)
                    for who in ("agent:writer", "plugin:acme", "system:host"):
                        assert bench.decide(who, "kb:Query", ["*"]) == Verdict(
                            "deny", f"nobody may call a tool: {KEY} is not right, which was reported to the operator"
                        )
                    assert not bench.authority.may_decide(principal("user:operator"), "kb:Query")
                    until = f"nobody may call a tool until {KEY} is right"
                    assert any(until in text and problem in text for text in caplog.messages)
                    assert any(problem in message for message in bench.problems())


async def test_rules_that_cannot_be_read_let_nobody_through(own: Open) -> None:
    async with own({"approvals": {"seconds": float("inf")}}) as bench:
        assert "cannot be read" in bench.decide("user:operator", "kb:Query").reason


async def test_rules_that_were_mended_hold(opened: Open) -> None:
    async with opened() as bench:
        await bench.save({"roles": 1})
        assert bench.kind("user:operator", "a:b") == "deny"
        await bench.save({"roles": {}})
        assert bench.decide("user:operator", "a:b") is ALLOW


async def test_rules_in_a_damaged_file_let_nobody_through(own: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with own() as bench:
        await bench.save({"roles": {"r": {"deny": ["kb:*"]}}, "principals": {"*": ["r"]}})
    (saved,) = Path(os.environ["TAVERN_STATE_DIR"]).rglob("settings.json")
    saved.write_text("{")
    async with own() as bench:
        assert "the operator's value cannot be read" in bench.decide("user:operator", "kb:Drop").reason
        saved.write_text('{"values": {}}')
        bench.host.settings.follow()
        assert bench.decide("user:operator", "kb:Drop").kind == "allow"


# --- what would take too long or too much -------------------------------------------------------------


async def test_patterns_schemas_and_crowds_cost_little(opened: Open) -> None:
    evil = {"properties": {"x": {"pattern": "^(a+)+$"}}, "required": ["x"]}
    rules = {
        "roles": {"r": {"deny": [{"tool": "*", "arguments": evil}, "*a" * 500]}},
        "principals": {"user:*": ["r"]},
    }
    async with opened(rules) as bench:
        assert bench.decide("user:operator", "a:b", x="a" * 50_000 + "!") is ALLOW
        assert bench.decide("user:operator", "a" * 499, x="") is ALLOW
        assert bench.kind("agent:writer", "a" * 200, ["*a" * 5000 + "b"]) == "deny"
        wanted = tool("kb:Query")
        for number in range(20_000):
            assert bench.authority.decide(wanted, {}, Principal(kind="user", id=str(number)), None) is ALLOW
        assert len(bench.authority._rulings) < 10_000


async def test_two_versions_of_a_tool_are_two_tools(opened: Open) -> None:
    async with opened() as bench:
        assert bench.decide("agent:writer", tool("a:b"), ["*"]) is ALLOW
        assert bench.kind("agent:writer", tool("a:b", version="2", requires_approval=True), ["*"]) == "approve"


async def test_what_was_decided_about_a_tool_does_not_keep_it(opened: Open) -> None:
    async with opened() as bench:
        passing = tool("acme:look")
        assert bench.kind("user:operator", passing) == bench.kind("agent:a", passing, ["acme:look"]) == "allow"
        gone = weakref.ref(passing)
        del passing
        gc.collect()
        assert gone() is None
