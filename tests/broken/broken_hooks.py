"""Broken plugins that are imported, but register what cannot be, or fail when their hooks are called."""

from __future__ import annotations

import pytest
from base_project import HERE, call, run
from broken_plugins import FAILED, LATE, STARTED, Corpus, Use

from tavern_host import LLM, NODE_MANAGER, TOOL_MANAGER, Host
from tavern_host.contracts.errors import Vetoed

CORPUS = Corpus()
ROUTES = "tavern_register_routes"


def refused(name: str, text: str, reason: str, mend: str = "", *, hook: str = "tavern_startup") -> None:
    """Add a plugin of which nothing is registered, since something of it cannot be."""
    CORPUS.code(name, text, FAILED, reason, mend, hooked=(hook,))


# --- hooks that cannot be implemented like this ------------------------------------------------------

refused(
    "hook-alias",
    f"@hookimpl(specname='tavern_before_execute')  {HERE}\ndef innocent(request): pass\n",
    "innocent: the hook tavern_before_execute is not declared",
    'add "hook:server:workflow:before-execute" to permissions.hooks',
)
refused(
    "hook-any-arguments",
    f"@hookimpl  {HERE}\ndef tavern_startup(*everything): pass\n",
    "the hook tavern_startup has no argument 'everything'",
    "it has context",
)
refused(
    "hook-wrapper",
    f"import pluggy\n@pluggy.HookimplMarker('tavern')(wrapper=True)  {HERE}\ndef tavern_startup():\n    yield\n",
    "hook wrappers are not supported",
    "return a value from a plain hookimpl",
)
SIGNATURE = "@hookimpl\ndef tavern_startup(): pass\ntavern_startup.__signature__ = 5\n"
refused("hook-signature", SIGNATURE, "TypeError: unexpected object 5 in __signature__")
GENERATOR = f"@hookimpl  {HERE}\ndef tavern_startup():\n    yield\n"
refused("hook-generator", GENERATOR, "tavern_startup: a hookimpl returns, it does not yield", "returns")

# --- declarations that fail, or are outside of its own space ------------------------------------------

HANGS = f"@hookimpl  {HERE}\ndef {ROUTES}():\n    sys.hang()\n"
refused("declare-hangs", HANGS, f"{ROUTES} of declare-hangs{LATE}", hook=ROUTES)
WAITS = f"@hookimpl  {HERE}\nasync def {ROUTES}():\n    await asyncio.sleep(3600)\n"
refused("declare-waits", WAITS, f"{ROUTES} of declare-waits{LATE}", hook=ROUTES)
OF_ANOTHER = f"""@hookimpl  {HERE}
def {ROUTES}():
    return [RouteInfo(method='GET', path='/api/x/healthy/ping', handler=f'{{__name__}}:answer')]
"""
refused("route-of-another", OF_ANOTHER, "/api/x/healthy", "/api/x/route-of-another/", hook=ROUTES)

# --- hooks that others call: what is wrong with an answer costs that answer --------------------------


async def nodes_are_listed(host: Host) -> None:
    """The node types of everybody else are there."""
    assert await host.services.get(NODE_MANAGER).list_nodes()


async def tools_are_listed(host: Host) -> None:
    """The tools of everybody else are there."""
    assert await host.services.get(TOOL_MANAGER).list_tools()


async def text_is_parsed(host: Host) -> None:
    """Action text is read by the other protocols."""
    text = "Well.\n<|[REQUEST_TOOL]|>\ncommand:「始」healthy:greet「末」\nname:「始」Ada「末」\n<|[END_TOOL]|>"
    parsed = await host.services.get(TOOL_MANAGER).parse_text(text)
    assert [c.tool_id for c in parsed.calls] == ["healthy:greet"]


async def models_are_listed(host: Host) -> None:
    """The models that are set up, which are none, can be listed."""
    assert await host.services.get(LLM).models() == []


HOOKS: dict[str, tuple[str, Use]] = {
    "nodes": ("tavern_register_nodes", nodes_are_listed),
    "tools": ("tavern_discover_tools", tools_are_listed),
    "protocols": ("tavern_register_action_protocols", text_is_parsed),
    "adapters": ("tavern_register_llm_adapters", models_are_listed),
}


def answers(name: str, answer: str, reason: str, mend: str = "", *, code: str = "", placed: bool = True) -> None:
    """Add a plugin that answers a hook of another plugin, by the first word of its name, with this expression. It is
    `placed` where the host itself sees that the answer is wrong, at the line that fails or at the hook's first one."""
    hook, use = HOOKS[name.partition("-")[0]]
    at_hook, at_answer = (f"  {HERE}", "") if mend else ("", f"  {HERE}")
    text = f"{code}\n@hookimpl{at_hook}\ndef {hook}():\n    return {answer}{at_answer}\n"
    text = text if placed else text.replace(HERE, "")
    CORPUS.code(name, text, STARTED, reason, mend, at="use", use=use, hooked=(hook,))


for kind in HOOKS:
    answers(f"{kind}-raise", "1 / 0", "ZeroDivisionError")
NODES, EXPECTED = "tavern_register_nodes: returned", "expected a list of NodeDefinition"
answers("nodes-exit", "sys.exit()", "tried to end the program")
answers("nodes-number", "5", f"{NODES} int", EXPECTED)
answers("nodes-item", "[None]", f"{NODES} a list with NoneType", EXPECTED)
PROTOCOL = "from tavern_tools.api.protocols import ActionProtocolInfo\n"
PARSER = """class Parser:
    def __init__(self, options): pass
    def feed(self, text): raise RuntimeError("cannot read")
    def finish(self): return []
"""
GONE, RAISES = (f"[ActionProtocolInfo(name='a', handler=f'{{__name__}}:{name}')]" for name in ("Gone", "Parser"))
answers("protocols-handler-gone", GONE, "_gone:Gone'", "add what it names", code=PROTOCOL)
answers("protocols-parser-raises", RAISES, "RuntimeError: cannot read", code=PROTOCOL + PARSER, placed=False)
for name, node, namespace, mend in (
    ("nodes-of-core", "UpperCase", "core", "'core' is reserved"),
    ("nodes-of-another", "Greet", "healthy", "healthy keeps it"),
):
    answer = f"[NodeDefinition(type='{node}', namespace='{namespace}')]"
    answers(name, answer, f"{namespace}:{node}", mend, placed=False)
TOOL = "[ToolDefinition(id='workflow:toast', implementation=ToolImplementation(kind='node', node_type='core:Text'))]"
answers("tools-of-another", TOOL, "workflow:toast", "choose another", placed=False)

# --- hooks that see what others do -------------------------------------------------------------------


def sees(name: str, body: str, reason: str, use: Use, *, hook: str = "tavern_before_execute") -> None:
    """Add a plugin that intercepts and fails when it is asked to: a run or call in whose metadata or
    arguments its own name stands."""
    first = "node" if hook == "tavern_before_register_node" else "request"
    CORPUS.code(
        name, f"@hookimpl\nasync def {hook}({first}):\n{body}", STARTED, reason, at="use", use=use, hooked=(hook,)
    )


def refuses_one_run(name: str) -> Use:
    """Return the use in which the plugin fails a workflow's run: it is refused in its name, and no other is."""

    async def use(host: Host) -> None:
        with pytest.raises(Vetoed, match=name):
            await run(host, on=name)

    return use


SWALLOWS = "while True:\n            try: await asyncio.sleep(3600)\n            except asyncio.CancelledError: pass"
UNSPEAKABLE = "raise type('Odd', (Exception,), {'__str__': lambda self: 5})"
for name, statement, reason in (
    ("veto-raises", f"raise RuntimeError('broken')  {HERE}", "tavern_before_execute: RuntimeError: broken"),
    ("veto-interrupts", f"raise KeyboardInterrupt  {HERE}", "tried to end the program (KeyboardInterrupt)"),
    ("veto-number", "return 5", "tavern_before_execute of veto-number returned int, expected RunRequest, Veto or None"),
    ("veto-waits", "await asyncio.Event().wait()", f"tavern_before_execute of veto-waits{LATE}"),
    ("veto-unspeakable", f"{UNSPEAKABLE}  {HERE}", "Odd: (its text cannot be shown)"),
    ("veto-swallows", SWALLOWS, f"tavern_before_execute of veto-swallows{LATE}"),
):
    body = f"    if request.metadata.get('on') == '{name}':\n        {statement}\n"
    sees(name, body, reason, refuses_one_run(name))


async def call_is_vetoed(host: Host) -> None:
    """A call that the plugin fails on is a failed call, and no other is."""
    result = await call(host, name="call-veto-raises")
    assert (result.error.type, result.status) == ("Vetoed", "error")
    assert "call-veto-raises" in result.error.message


RAISES = f"    if request.arguments['name'] == 'call-veto-raises':\n        raise RuntimeError('broken')  {HERE}\n"
REASON = "tavern_before_tool_call: RuntimeError: broken"
sees("call-veto-raises", RAISES, REASON, call_is_vetoed, hook="tavern_before_tool_call")


async def nothing_is_changed(host: Host) -> None:
    """What a plugin changes in place is its own copy."""
    assert (await run(host)).outputs == {"said": "HELLO, ADA"}


sees("run-mutates", "    request.inputs['name'] = 'Mallory'\n", "", nothing_is_changed)


async def node_is_unchanged(host: Host) -> None:
    """What a plugin did to a node type, or failed to do, does not show."""
    node = await host.services.get(NODE_MANAGER).get("healthy:Greet")
    assert (list(node.inputs), node.category) == (["name"], "")


FILTER = "tavern_before_register_node"
WAITS_ONCE = """if not hasattr(sys.modules[__name__], 'waited'):
            sys.modules[__name__].waited = True
            await asyncio.sleep(3600)"""
for name, statement, reason in (
    ("filter-mutates", "node.inputs.clear()", ""),
    ("filter-raises", f"raise RuntimeError('broken')  {HERE}", f"{FILTER}: RuntimeError: broken"),
    ("filter-number", "return 5", f"{FILTER} of filter-number returned int"),
    ("filter-waits", WAITS_ONCE, f"{FILTER} of filter-waits{LATE}"),
):
    sees(name, f"    if node.type == 'Greet':\n        {statement}\n", reason, node_is_unchanged, hook=FILTER)
