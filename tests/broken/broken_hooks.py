"""Broken plugins that are imported, but register what cannot be, or fail when their hooks are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broken_plugins import Corpus, Says
from inn import HEAD, HERE, call, run

from tavern_host import LLM, NODE_MANAGER, SETTINGS, TOOL_MANAGER, Host
from tavern_host.contracts.errors import Vetoed
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.settings import SettingsChange

CORPUS = Corpus()
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED

STARTUP = "tavern_startup"
ROUTES = "tavern_register_routes"
UI = "tavern_declare_ui"


def refused(
    name: str,
    text: str,
    reason: str,
    mend: str,
    *,
    hooked: tuple[str, ...] = (STARTUP,),
    threads: tuple[str, ...] = (),
    **plugin: Any,
) -> None:
    """Add a plugin of which nothing is registered, since something of it cannot be."""
    file = "__init__.py" if HERE in text else None
    says = Says(name, FAILED, reason, mend, file)
    CORPUS.add(name, lambda inn: inn.code(name, HEAD + text, hooked=hooked, **plugin), says, threads=threads)


def declares(name: str, hook: str, answer: str, reason: str, mend: str, *, code: str = "", **plugin: Any) -> None:
    """Add a plugin whose declaration hook answers with this expression, which cannot be registered."""
    says = Says(name, FAILED, reason, mend, "__init__.py")
    text = answering(hook, answer, code, fails="failed" in reason)
    CORPUS.add(name, lambda inn: inn.code(name, HEAD + text, hooked=(hook,), **plugin), says)


def answering(hook: str, answer: str, code: str, *, fails: bool) -> str:
    """Return a hook that answers with an expression; the host names its first line, or the one that fails."""
    first, last = ("", f"  {HERE}") if fails else (f"  {HERE}", "")
    return f"{code}\n@hookimpl{first}\ndef {hook}():\n    return {answer}{last}\n"


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
refused(
    "hook-signature",
    "@hookimpl\ndef tavern_startup(): pass\ntavern_startup.__signature__ = 5\n",
    "TypeError: unexpected object 5 in __signature__",
    "`tavern plugins disable hook-signature`",
)
refused(
    "hook-generator",
    f"@hookimpl  {HERE}\ndef tavern_startup():\n    yield\n",
    "tavern_startup: a hookimpl returns, it does not yield",
    "returns",
)

# --- declarations that fail --------------------------------------------------------------------------

declares("declare-raises", ROUTES, "1 / 0", "failed: ZeroDivisionError", "`tavern plugins disable declare-raises`")
declares(
    "declare-exits",
    ROUTES,
    "sys.exit(2)",
    "failed: tavern_register_routes of declare-exits tried to end",
    "`tavern plugins disable declare-exits`",
)
refused(
    "declare-hangs",
    f"@hookimpl  {HERE}\ndef tavern_register_routes():\n    sys.release.wait(60)\n",
    "tavern_register_routes of declare-hangs did not end within",
    "`tavern plugins disable declare-hangs`",
    hooked=(ROUTES,),
    threads=("tavern_register_routes of declare-hangs",),
)
refused(
    "declare-waits",
    f"@hookimpl  {HERE}\nasync def tavern_register_routes():\n    await asyncio.sleep(3600)\n",
    "tavern_register_routes of declare-waits did not end within",
    "`tavern plugins disable declare-waits`",
    hooked=(ROUTES,),
)

# --- what is outside of its own space ----------------------------------------------------------------

ANSWER = "async def answer(request, context): ...\n"


def route(path: str, handler: str = "f'{__name__}:answer'") -> str:
    return f"RouteInfo(method='GET', path={path!r}, handler={handler})"


declares(
    "route-of-another",
    ROUTES,
    f"[{route('/api/x/healthy/ping')}]",
    "/api/x/healthy",
    "/api/x/route-of-another/",
    code=ANSWER,
)
declares(
    "handler-outside",
    ROUTES,
    "[{}]".format(route("/api/x/handler-outside/a", "'os:system'")),
    "the handler 'os:system'",
    "must be 'module:name' inside",
)
declares(
    "ui-undeclared",
    UI,
    "[UiDeclaration(kind='wrap', target='ui:BaseNode')]",
    "wrap on 'ui:BaseNode' is not declared",
    "add it to permissions.ui.wrap in plugin.yaml",
)

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


Use = Callable[[Host], Awaitable[None]]


def answers(
    name: str, hook: str, answer: str, reason: str, mend: str, use: Use, *, code: str = "", placed: bool = True
) -> None:
    """Add a plugin that answers a hook of another plugin with this expression. It is `placed` where the host
    itself sees that the answer is wrong; what the other plugin finds wrong with it has no file and line."""
    says = Says(name, STARTED, reason, mend, "__init__.py" if placed else None, at="use")
    text = answering(hook, answer, code, fails="plugins disable" in mend)
    CORPUS.add(name, lambda inn: inn.code(name, HEAD + text, hooked=(hook,)), says, use=use)


for kind, hook, model, use in (
    ("nodes", "tavern_register_nodes", "NodeDefinition", nodes_are_listed),
    ("tools", "tavern_discover_tools", "ToolDefinition", tools_are_listed),
    ("protocols", "tavern_register_action_protocols", "ActionProtocolInfo", text_is_parsed),
    ("adapters", "tavern_register_llm_adapters", "LlmAdapterInfo", models_are_listed),
):
    answers(f"{kind}-raise", hook, "1 / 0", "ZeroDivisionError", f"`tavern plugins disable {kind}-raise`", use)
    answers(f"{kind}-exit", hook, "sys.exit()", "tried to end the program", f"tavern plugins disable {kind}-exit", use)
    answers(f"{kind}-number", hook, "5", f"{hook}: returned int", f"expected a list of {model}", use)
    answers(
        f"{kind}-item", hook, "[None]", f"{hook}: returned a list with NoneType", f"expected a list of {model}", use
    )
answers(
    "protocols-handler-gone",
    "tavern_register_action_protocols",
    "[ActionProtocolInfo(name='gone', handler=f'{__name__}:Gone')]",
    "there is no handler 'tavern_plugins.protocols_handler_gone:Gone'",
    "`tavern plugins disable protocols-handler-gone`",
    text_is_parsed,
    placed=False,
    code="from tavern_host.contracts.protocols import ActionProtocolInfo",
)
answers(
    "protocols-parser-raises",
    "tavern_register_action_protocols",
    "[ActionProtocolInfo(name='raises', handler=f'{__name__}:Parser')]",
    "RuntimeError: cannot read",
    "`tavern plugins disable protocols-parser-raises`",
    text_is_parsed,
    placed=False,
    code="""from tavern_host.contracts.protocols import ActionProtocolInfo
class Parser:
    def __init__(self, options): pass
    def feed(self, text): raise RuntimeError("cannot read")
    def finish(self): return []
""",
)
answers(
    "nodes-of-core",
    "tavern_register_nodes",
    "[NodeDefinition(type='UpperCase', namespace='core', handler=f'{__name__}:x')]",
    "core:UpperCase",
    "'core' is reserved",
    nodes_are_listed,
    placed=False,
)
answers(
    "nodes-of-another",
    "tavern_register_nodes",
    "[NodeDefinition(type='Greet', namespace='healthy', handler=f'{__name__}:x')]",
    "healthy:Greet",
    "healthy keeps it",
    nodes_are_listed,
    placed=False,
)
answers(
    "tools-of-another",
    "tavern_discover_tools",
    "[ToolDefinition(id='workflow:toast', implementation=ToolImplementation(kind='node', node_type='core:Text'))]",
    "workflow:toast",
    "choose another",
    tools_are_listed,
    placed=False,
)

# --- hooks that see what others do -------------------------------------------------------------------


def sees(name: str, body: str, reason: str, use: Use, *, hook: str = "tavern_before_execute") -> None:
    """Add a plugin that intercepts and fails when it is asked to: a run or call in whose metadata or
    arguments its own name stands."""
    argument = "change" if hook == "tavern_before_save_settings" else "request"
    text = f"@hookimpl\nasync def {hook}({argument}):\n{body}"
    file = "__init__.py" if HERE in text else None
    mend = f"`tavern plugins disable {name}`" if reason else ""
    says = Says(name, STARTED, reason, mend, file, at="use")
    CORPUS.add(name, lambda inn: inn.code(name, HEAD + text, hooked=(hook,)), says, use=use)


def refuses_one_run(name: str) -> Use:
    """Return what runs a workflow that the plugin fails on: refused in its name, and no other is."""

    async def use(host: Host) -> None:
        with pytest.raises(Vetoed, match=name):
            await run(host, on=name)

    return use


for name, statement, reason in (
    ("veto-raises", f"raise RuntimeError('broken')  {HERE}", "tavern_before_execute: RuntimeError: broken"),
    ("veto-exits", f"sys.exit(1)  {HERE}", "tried to end the program (SystemExit: 1)"),
    ("veto-interrupts", f"raise KeyboardInterrupt  {HERE}", "tried to end the program (KeyboardInterrupt)"),
    ("veto-waits", "await asyncio.Event().wait()", "tavern_before_execute of veto-waits did not end within"),
    ("veto-number", "return 5", "tavern_before_execute of veto-number returned int, expected RunRequest, Veto or None"),
    (
        "veto-invalid",
        "return request.model_copy(update={'inputs': 5})",
        "tavern_before_execute of veto-invalid returned a RunRequest that is none",
    ),
    (
        "veto-unspeakable",
        f"raise type('Odd', (Exception,), {{'__str__': lambda self: 5}})  {HERE}",
        "Odd: (its text cannot be shown)",
    ),
    (
        "veto-swallows",
        "while True:\n            try: await asyncio.sleep(3600)\n            except asyncio.CancelledError: pass",
        "tavern_before_execute of veto-swallows did not end within",
    ),
):
    body = f"    if request.metadata.get('on') == '{name}':\n        {statement}\n"
    sees(name, body, reason, refuses_one_run(name))


async def call_is_vetoed(host: Host) -> None:
    """A call that the plugin fails on is a failed call, and no other is."""
    result = await call(host, name="call-veto-raises")
    assert (result.error.type, result.status) == ("Vetoed", "error")
    assert "call-veto-raises" in result.error.message


sees(
    "call-veto-raises",
    f"    if request.arguments['name'] == 'call-veto-raises':\n        raise RuntimeError('broken')  {HERE}\n",
    "tavern_before_tool_call: RuntimeError: broken",
    call_is_vetoed,
    hook="tavern_before_tool_call",
)


async def settings_are_not_saved(host: Host) -> None:
    """A change that the plugin fails on is refused, and no other is."""
    settings = host.services.get(SETTINGS)
    key = "extensions.healthy.greeting"
    with pytest.raises(Vetoed, match="save-veto-raises"):
        await settings.save(SettingsChange(plugin="healthy", values={key: "save-veto-raises"}))
    (saved,) = await settings.save(SettingsChange(plugin="healthy", values={key: "Good evening"}))
    assert saved.value == "Good evening"


sees(
    "save-veto-raises",
    f"    if 'save-veto-raises' in change.values.values():\n        raise RuntimeError('broken')  {HERE}\n",
    "tavern_before_save_settings: RuntimeError: broken",
    settings_are_not_saved,
    hook="tavern_before_save_settings",
)


async def nothing_is_changed(host: Host) -> None:
    """What a plugin changes in place is its own copy."""
    assert (await run(host)).outputs == {"said": "HELLO, ADA"}


sees("run-mutates", "    request.inputs['name'] = 'Mallory'\n", "", nothing_is_changed)


async def node_is_unchanged(host: Host) -> None:
    """What a plugin did to a node type, or failed to do, does not show."""
    node = await host.services.get(NODE_MANAGER).get("healthy:Greet")
    assert list(node.inputs) == ["name"]
    assert node.category == ""


def filters(name: str, statement: str, reason: str) -> None:
    """Add a plugin that does this to the node type of the healthy plugin, and nothing to others."""
    text = (
        f"@hookimpl\nasync def tavern_before_register_node(node):\n    if node.type == 'Greet':\n        {statement}\n"
    )
    file = "__init__.py" if HERE in text else None
    says = Says(name, STARTED, reason, f"`tavern plugins disable {name}`" if reason else "", file, at="use")
    hooked = ("tavern_before_register_node",)
    CORPUS.add(name, lambda inn: inn.code(name, HEAD + text, hooked=hooked), says, use=node_is_unchanged)


filters("filter-mutates", "node.inputs.clear()", "")
filters("filter-raises", f"raise RuntimeError('broken')  {HERE}", "tavern_before_register_node: RuntimeError: broken")
filters("filter-number", "return 5", "tavern_before_register_node of filter-number returned int")
filters(
    "filter-waits",
    "if not hasattr(sys.modules[__name__], 'waited'):\n"
    "            sys.modules[__name__].waited = True\n"
    "            await asyncio.sleep(3600)",
    "tavern_before_register_node of filter-waits did not end within",
)
