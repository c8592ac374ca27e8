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
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.api.toolcalls import ToolRule, ToolScope
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

    def check(self, rows: list[tuple[Any, ...]]) -> None:
        """Check rows of who calls what, by which scope, with which arguments, and how that is decided: `allow` or the
        kind, and what the reason ends with."""
        with Failures() as failures:
            for who, what, scope, arguments, kind, *reason in rows:
                with failures.row((who, what, scope, arguments)):
                    verdict = self.decide(who, what, scope, **arguments)
                    assert verdict is ALLOW if kind == "allow" else verdict.kind == kind
                    assert verdict.reason.endswith("".join(reason))

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

AGENT, UNLISTED = "agent:writer", "neither its profile nor the operator lists it"
NOT_HERE = 'the tool "kb:Query" is not one of those that may be called here'
ACTING = tool("my:run", service="executionEngine", method="run", plugin=None)
OF_PLUGIN = tool("my:run", service="executionEngine", method="run")
UNKNOWN = tool("my:run", service="nobodys", method="x", plugin=None)
READING = tool("my:get", plugin=None)


async def test_without_rules_only_agents_need_a_scope(opened: Open) -> None:
    everybody = ("user:operator", "user:guest", "system:host", "plugin:acme")
    async with opened() as bench:
        rows: Any = [
            *((who, what, None, {}, "allow") for who in everybody[:3] for what in ("kb:Query", "node:core:Text")),
            ("plugin:acme", "kb:Query", None, {}, "allow"),
            ("plugin:acme", "node:core:Text", ["node:*"], {}, "deny"),
            *((AGENT, "kb:Query", scope, {}, "allow") for scope in (["kb:*"], ["kb:Quer?", "x"])),
            (AGENT, "kb:Query", None, {}, "deny", f"agent:writer may not call kb:Query: {UNLISTED}"),
            *(
                (AGENT, "kb:Query", scope, {}, "deny")
                for scope in (ToolScope(), [], ["KB:*", "kb:query", "ｋｂ:*", "kb"])
            ),
            # a star does not give an agent every node
            (AGENT, "node:core:Text", ["*"], {}, "deny"),
            (AGENT, "node:core:Text", ["*", "node:core:*"], {}, "allow"),
            # a scope limits everybody
            *((who, "kb:Query", ["system:*"], {}, "deny", NOT_HERE) for who in everybody),
            *((who, "kb:Query", ["kb:*"], {}, "allow") for who in everybody),
            # two versions of a tool are two tools
            (AGENT, tool("a:b"), ["*"], {}, "allow"),
            (AGENT, tool("a:b", version="2", requires_approval=True), ["*"], {}, "approve"),
        ]
        bench.check(rows)
        odd = Principal.model_construct(kind="User", id="operator")  # type: ignore[arg-type]
        assert bench.authority.decide(tool("kb:Query"), {}, odd, None).kind == "deny"
        for who, may in {"user:x": True, "system:host": True, "agent:a": False, "plugin:p": False}.items():
            assert bench.authority.may_decide(principal(who), "kb:Query") is may


async def test_a_project_tool_gives_agents_no_right(opened: Open) -> None:
    roles = {"all": {"allow": ["*", "deputy:x"]}, "one": {"allow": ["my:run"]}}
    async with opened({"roles": roles, "principals": {"agent:wide": ["all"], "agent:exact": ["one"]}}) as bench:
        denied = bench.decide(AGENT, ACTING, ["my:run"])
        assert "does not give the permission services.use:executionEngine:execute" in denied.reason
        rows: Any = [
            *((AGENT, acting, ["my:run"], {}, "deny") for acting in (ACTING, UNKNOWN)),
            ("agent:wide", ACTING, None, {}, "deny"),
            *((who, ACTING, None, {}, "allow") for who in ("agent:exact", "user:operator")),
            *((AGENT, READING, ["my:get"], {}, "allow"), (AGENT, OF_PLUGIN, ["my:run"], {}, "allow")),
            # a tool that calls tools is no way past a scope
            (AGENT, tool("d:x", service="toolManager", method="describe"), ["*"], {}, "allow"),
        ]
        bench.check(rows)
        for method in ("call", "call_all", "call_text", "decide", "nothing"):
            deputy = tool("deputy:x", service="toolManager", method=method)
            assert bench.decide("user:operator", deputy) is ALLOW
            for who in (AGENT, "agent:wide", "plugin:acme"):
                denied = bench.decide(who, deputy, ["*"])
                assert (denied.kind, "past what its caller may call" in denied.reason) == ("deny", True), method


# --- roles and approvals ------------------------------------------------------------------------------

SAFE_PATH = {"properties": {"path": {"pattern": "^safe"}}}
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
ALWAYS, SOMETIMES = tool("a:b", requires_approval=True), tool("a:c", requires_approval={"required": ["force"]})
OWN_RULE = ToolScope(allowed=["*"], approval=[ToolRule(tool="kb:*", arguments={"required": ["drop"]})])
WRONG_RULE = ToolScope(allowed=["*"], approval=[ToolRule(tool="kb:*", arguments={"type": "nonsense"})])
RULED: Any = {
    "a role allows and denies tools": (
        {
            "roles": {
                "reader": {"allow": ["File.*", {"tool": "kb:*"}], "deny": ["File.Delete*"]},
                **{"careful": {"deny": ["kb:Drop"]}, "none": {"allow": []}},
            },
            "principals": {"agent:w*": ["reader"], "*": ["careful"], "user:guest": ["none"]},
        },
        *((AGENT, "File.Read", None, {}, "allow"), ("agent:other", "kb:Query", ["kb:*"], {}, "allow")),
        (AGENT, "system:time", ["*"], {}, "deny", "none of its roles (reader, careful) allows it"),
        (
            *(AGENT, "File.Delete", None, {}, "deny"),
            'agent:writer may not call File.Delete: the rule "File.Delete*" of the role "reader" denies it',
        ),
        *((AGENT, "kb:Query", ["system:*"], {}, "deny"), ("agent:other", "kb:Drop", ["kb:*"], {}, "deny")),
        *((who, "kb:Drop", None, {}, "deny") for who in (AGENT, "user:operator", "plugin:acme", "system:host")),
        *(("user:operator", "system:time", None, {}, "allow"), ("user:guest", "system:time", None, {}, "deny")),
    ),
    "rules look at arguments": (
        {
            "roles": {
                "safe": {"allow": [{"tool": "File.*", "arguments": PATH_IS_SAFE}]},
                "quiet": {"deny": [{"tool": "*", "arguments": {"required": ["loud"]}}]},
            },
            "principals": {"agent:*": ["safe"], "user:*": ["quiet"]},
        },
        *((AGENT, "File.Read", None, {"path": "safe/a"}, "allow"), (AGENT, "File.Read", None, {}, "deny")),
        (
            *(AGENT, "File.Read", None, {"path": "x/safe/a"}, "deny"),
            'may not call File.Read with these arguments: the rule "File.*" of the role "safe" allows others',
        ),
        *(("user:operator", "a:b", None, {"q": 1}, "allow"), ("user:operator", "a:b", None, {"loud": 1}, "deny")),
    ),
    "arguments that nobody can look at are not allowed": (
        {
            "roles": {
                key: {rule: [{"tool": "*", "arguments": SAFE_PATH}]} for key, rule in (("a", "allow"), ("d", "deny"))
            },
            "principals": {"agent:*": ["a"], "user:*": ["d"]},
        },
        *((who, "a:b", None, {"path": odd}, "deny") for odd in ("\ud800", DEEP) for who in (AGENT, "user:operator")),
    ),
    "what is denied is denied however it is written": (
        {
            "roles": {"r": {"deny": ["FileOperator.*"], "allow": ["*"]}, "s": {"allow": ["FileOperator.*"]}},
            "principals": {"user:*": ["r"], "agent:*": ["s"]},
        },
        *(
            (who, odd, None, {}, "deny")
            for odd in ("fileoperator.Write", "ＦileOperator.Write", "File\u200bOperator.Write", "FILEOPERATOR．x")
            for who in (AGENT, "user:operator")
        ),
        ("user:operator", "FileOperators:x", None, {}, "allow"),
    ),
    "a tool or its caller asks for approval": (
        None,
        *(
            (AGENT, ALWAYS, ["*"], {}, "approve", "the tool a:b asks for it"),
            ("user:operator", ALWAYS, None, {}, "allow"),
        ),
        *((who, ALWAYS, None, {}, "approve") for who in ("plugin:acme", "system:host")),
        *((AGENT, SOMETIMES, ["*"], {}, "allow"), (AGENT, SOMETIMES, ["*"], {"force": False}, "approve")),
        (AGENT, "kb:Query", OWN_RULE, {"drop": 1}, "approve", 'the rule "kb:*" of the caller asks for it'),
        *((AGENT, "kb:Query", OWN_RULE, {}, "allow"), (AGENT, "a:b", OWN_RULE, {"drop": 1}, "allow")),
        *(
            ("user:operator", "kb:Query", OWN_RULE, {"drop": 1}, "allow"),
            (AGENT, "kb:Query", WRONG_RULE, {}, "approve"),
        ),
    ),
    "the operator asks, of those who do not approve": (
        {
            "roles": {"r": {"approve": [{"tool": "File.*", "arguments": {"required": ["path"]}}]}},
            **{
                "principals": {"*": ["r"]},
                "approvals": {"seconds": 60, "default": "approve", "approvers": ["user:operator"]},
            },
        },
        (AGENT, "File.Read", ["*"], {"path": "a"}, "approve", 'the rule "File.*" of the role "r" asks for it'),
        *((AGENT, "File.List", ["*"], {}, "allow"), ("user:guest", "File.Read", None, {"path": "a"}, "approve")),
        ("user:operator", "File.Read", None, {"path": "a"}, "allow"),
    ),
    "a denial comes before an approval": (
        {"roles": {"r": {"deny": ["a:b"], "approve": ["*"]}}, "principals": {"*": ["r"]}},
        *((AGENT, ALWAYS, ["*"], {}, "deny"), (AGENT, "a:c", ["*"], {}, "approve")),
    ),
}


async def test_rules_decide_who_calls_what(opened: Open) -> None:
    for rules, *rows in RULED.values():
        async with opened(rules) as bench:
            bench.check(rows)
    async with opened() as bench:
        assert bench.decide(AGENT, ALWAYS, ["*"]) == Verdict("approve", "the tool a:b asks for it", 3600.0, "refuse")
    async with opened(RULED["the operator asks, of those who do not approve"][0]) as bench:
        asked = Verdict("approve", 'the rule "File.*" of the role "r" asks for it', 60.0, "approve")
        assert bench.decide(AGENT, "File.Read", ["*"], path="a") == asked


async def test_who_approves_may_call_the_tool_itself(opened: Open) -> None:
    guest = {"allow": ["kb:*", {"tool": "f:*", "arguments": PATH_IS_SAFE}], "deny": ["kb:Drop"]}
    rules = {
        **{"roles": {"guest": guest, "boss": {}}, "principals": {"user:guest": ["guest"], "agent:boss": ["boss"]}},
        "approvals": {"approvers": ["user:*", "agent:boss"]},
    }
    rows: Any = [
        *(("user:operator", "kb:Drop", None, True), ("user:guest", "kb:Query", None, True)),
        *(("agent:boss", "kb:Drop", None, True), ("user:guest", "kb:Drop", None, False)),
        *(("user:guest", "system:time", None, False), ("user:guest", "f:x", None, True)),
        *(("user:guest", "f:x", {"path": "safe/a"}, True), ("user:guest", "f:x", {"path": "a"}, False)),
        *((nobody, "kb:Query", None, False) for nobody in (AGENT, "plugin:acme", "system:host")),
    ]
    async with opened(rules) as bench:
        for who, what, arguments, may in rows:
            assert bench.authority.may_decide(principal(who), what, arguments) is may, (who, what, arguments)


# --- where rules come from ----------------------------------------------------------------------------


async def test_rules_hold_from_the_next_call_on(opened: Open) -> None:
    denying = {"roles": {"r": {"deny": ["kb:*"]}}, "principals": {"*": ["r"]}}
    async with opened() as bench:
        for rules, kind in (
            (None, "allow"),
            (denying, "deny"),
            (None, "allow"),
            ({"roles": 1}, "deny"),
            ({"roles": {}}, "allow"),
        ):
            await bench.save(rules)
            assert bench.decide("user:operator", "kb:Drop").kind == kind


async def test_the_environment_comes_first_the_project_never(own: Open) -> None:
    widened = '{"roles": {"r": {"allow": ["*"]}}, "principals": {"agent:*": ["r"]}, "approvals": {"approvers": ["*"]}}'
    async with own({"roles": {"r": {"deny": ["a:*"]}}, "principals": {"user:*": ["r"]}}, project=widened) as bench:
        assert bench.decide(AGENT, "kb:Query").kind == "deny"
        assert not bench.authority.may_decide(principal(AGENT), "kb:Query")
        assert any("a project does not say who may call what" in message for message in bench.problems())
        await bench.save({})
        assert bench.decide("user:operator", "a:b").kind == "deny"


STRIN, LOOK = {"type": "strin"}, {"properties": {"a": {"pattern": "(?=x)"}}}
WRONG: Any = [
    ([], "expected an object with roles, principals and approvals, got an array"),
    ("x", "got text"),
    ({"rolles": {}}, "rolles: Extra inputs are not permitted"),
    ({"roles": {"r": {"allow": [{"tools": "x"}]}}}, "roles.r.allow[0].tool: Field required"),
    ({"roles": {"r": {"deny": [""]}}}, "roles.r.deny[0].tool: String should have at least 1 character"),
    ({"roles": {"r": {"deny": ["*" * 10_000]}}}, "roles.r.deny[0].tool: String should have at most 1000"),
    ({"roles": {"r": {"allow": "*"}}}, "roles.r.allow: Input should be a valid list"),
    (
        {"roles": {"r": {"deny": [{"tool": "x", "arguments": STRIN}]}}},
        "roles.r.deny[0].arguments.type: expected one of",
    ),
    ({"roles": {"r": {"deny": [{"tool": "x", "arguments": LOOK}]}}}, "arguments.properties.a.pattern: the pattern"),
    ({"roles": {"writer": {}}, "principals": {"*": ["writr"]}}, 'there is no role "writr" (did you mean writer?)'),
    ({"principals": {"agents:*": []}}, "expected user:ID, agent:ID, plugin:ID, system:ID or a pattern"),
    ({"principals": {"writer": []}}, 'got "writer"'),
    ({"approvals": {"seconds": 0}}, "approvals.seconds: Input should be greater than 0"),
    ({"approvals": {"default": "yes"}}, "approvals.default: Input should be 'approve' or 'refuse'"),
    ({"approvals": {"approvers": ["operator"]}}, "approvals.approvers[0]: expected user:ID"),
]


async def test_while_rules_are_wrong_nobody_calls_anything(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    nobody = f"nobody may call a tool: {KEY} is not right, which was reported to the operator"
    with Failures() as failures:
        for access, problem in WRONG:
            with failures.row(problem):
                async with opened(access) as bench:
                    told = bench.decide("user:operator", "kb:Query")
                    assert told.kind == "deny"
                    assert problem in told.reason
                    for who in (AGENT, "plugin:acme", "system:host"):
                        assert bench.decide(who, "kb:Query", ["*"]) == Verdict("deny", nobody)
                    assert not bench.authority.may_decide(principal("user:operator"), "kb:Query")
                    until = f"nobody may call a tool until {KEY} is right"
                    assert any(until in text and problem in text for text in caplog.messages)
                    assert any(problem in message for message in bench.problems())


async def test_unreadable_rules_let_nobody_through(own: Open) -> None:
    async with own({"approvals": {"seconds": float("inf")}}) as bench:
        assert "cannot be read" in bench.decide("user:operator", "kb:Query").reason
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
    rules = {"roles": {"r": {"deny": [{"tool": "*", "arguments": evil}, "*a" * 500]}}, "principals": {"user:*": ["r"]}}
    async with opened(rules) as bench:
        assert bench.decide("user:operator", "a:b", x="a" * 50_000 + "!") is ALLOW
        assert bench.decide("user:operator", "a" * 499, x="") is ALLOW
        assert bench.decide(AGENT, "a" * 200, ["*a" * 5000 + "b"]).kind == "deny"
        wanted = tool("kb:Query")
        for number in range(11_000):
            assert bench.authority.decide(wanted, {}, Principal(kind="user", id=str(number)), None) is ALLOW
        assert len(bench.authority._rulings) < 10_000
        passing = tool("acme:look")
        assert bench.decide("user:operator", passing, x="") is bench.decide("agent:a", passing, ["acme:look"]) is ALLOW
        gone = weakref.ref(passing)
        del passing
        gc.collect()
        assert gone() is None  # what was decided about a tool does not keep it
