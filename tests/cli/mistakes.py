"""Mistakes that authors of plugins make, each in a small plugin of its own, with what `tavern plugins check` says.

`NAME` and `PKG` in files stand for the name of the plugin and that of its package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HOOKS = "from tavern_host import *\n\n\n"
FRONT = {"frontend": {"type": "vanilla", "vanilla": {"entry": "index.js", "rootDir": "web"}}}
VITE = {"frontend": {"dev": {"entry": "frontend/index.ts"}, "build": {"entry": "web/index.js"}}}
SETUP = "export default function setup(api) {\n"
OUT = {"id": "out", "type": "core:GroupOutput"}


def asks(*hooks: str, **more: Any) -> dict[str, Any]:
    """Return the permissions of a manifest: these hooks of the server, and more."""
    return {"permissions": {"hooks": [f"hook:server:{hook}" for hook in hooks], **more}}


def yaml(text: str) -> dict[str, str]:
    """Return a manifest of which the lines count, the sixth of which is the first of this text."""
    head = 'name: "NAME"\ndisplayName: Inn\nversion: 1.0.0\ndescription: Fine.\napiVersion: ">=0.1,<0.2"\n'
    return {"plugin.yaml": head + text}


def tool(lines: str) -> dict[str, str]:
    """Return a tool file with these lines from the third on."""
    last = '"description": "A text that is longer than any name."'
    return {"tools/a.tool.json": f'{{\n  "id": "NAME:a",\n{lines},\n  {last}\n}}\n'}


def workflow(*nodes: dict[str, Any], **more: Any) -> dict[str, str]:
    """Return a workflow file with a node in each line from the fourth on."""
    lines = ",\n".join(json.dumps(node) for node in nodes)
    rest = "".join(f',\n"{key}": {json.dumps(value)}' for key, value in more.items())
    return {"workflows/a-NAME.json": f'{{\n"name": "A",\n"nodes": [\n{lines}\n]{rest}\n}}\n'}


def agent(**changes: Any) -> dict[str, str]:
    """Return a profile with a field in each line, from the second on, and changes after the sixth."""
    fields = {"id": "NAME", "name": "A", "version": "1", "schema_version": "1.0", "tool_ids_inventory": []}
    fields |= {"core_deliberation_workflow_id": "deliberate-NAME"}
    return {
        "agents/a.json": json.dumps({**fields, **changes}, indent=1),
        "workflows/deliberate-NAME.json": DELIBERATION,
    }


DELIBERATION = json.dumps(
    {
        "name": "Deliberate",
        "nodes": [OUT],
        "edges": [],
        "interfaceInputs": {"user_message": {"dataFlowType": "STRING", "config": {"default": ""}}},
        "interfaceOutputs": {"decision": {"dataFlowType": "STRING", "config": {"default": "Hello"}}},
    }
)
AGENTS = {"agents": {"entry": "./agents"}, "workflows": {"entry": "./workflows"}}
TOOLS, FLOWS, NODES = ({key: {"entry": f"./{key}"}} for key in ("tools", "workflows", "nodes"))
BASES, TRIGGERS = {"knowledge": {"entry": "./knowledge"}}, {"triggers": {"entry": "./triggers"}}
COMMANDS, SERVICES, EXECUTE = "commands:register", "services:register", "workflow:before-execute"


@dataclass(frozen=True)
class Mistake:
    """A plugin's files and what of its manifest matters; where the mistake is, by which rule it is found, and words of
    what is said and of the mend."""

    name: str
    files: Mapping[str, str]
    file: str
    line: int
    says: str
    mend: str
    rule: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    level: str = "error"


def in_manifest(name: str, text: str, line: int, says: str, mend: str, rule: str = "manifest") -> Mistake:
    return Mistake(name, {"__init__.py": "", **yaml(text)}, "plugin.yaml", line, says, mend, rule)


def in_code(name: str, code: str, line: int, says: str, mend: str, rule: str = "hooks", **manifest: Any) -> Mistake:
    level = "warning" if rule == "blocking-call" else "error"
    return Mistake(name, {"__init__.py": HOOKS + code}, "__init__.py", line, says, mend, rule, manifest, level)


def in_page(name: str, call: str, says: str, mend: str, **manifest: Any) -> Mistake:
    files = {"web/index.js": f"{SETUP}  {call}\n}}\n"}
    return Mistake(name, files, "web/index.js", 2, says, mend, "front-end", {**FRONT, **manifest})


MANIFEST = (
    in_manifest("a key that is misspelt", "nodez: {entry: ./nodes}\n", 6, "unknown key 'nodez'", "did you mean nodes?"),
    in_manifest("two keys of one name", "icon: a\nicon: b\n", 7, "the key 'icon' stands here twice", "keep one"),
    in_manifest("a tab", "permissions:\n\thooks: []\n", 7, "not valid YAML", "indent with spaces, not with tabs"),
    in_manifest(
        "a number where a text is meant",
        "requires:\n  plugins:\n    other: 1.0\n",
        8,
        "requires.plugins.other: input should be a valid string",
        'write it in quotes: "1.0"',
    ),
    in_manifest(
        "a folder that is not there", "tools: {entry: ./tools}\n", 6, "there is no folder 'tools'", "make it in"
    ),
    in_manifest(
        "a module that is not there", "nodes: {entry: ./nodes}\n", 6, "there is no 'nodes'", "make this module"
    ),
    in_manifest(
        "a setting of another name",
        "configOptions:\n  - {key: extensions.other.a, type: string, label: A, description: A.}\n",
        7,
        "the key 'extensions.other.a' must begin with",
        "must begin with 'extensions.NAME.'",
    ),
    in_manifest(
        "a hook's permission that is misspelt",
        'permissions:\n  hooks:\n    - "hook:server:host:starup"\n',
        8,
        "there is no permission 'hook:server:host:starup'",
        "did you mean hook:server:host:startup?",
    ),
    in_manifest(
        "a service's permission that is misspelt",
        "permissions:\n  services:\n    use:\n      - toolManager:exekute\n",
        9,
        "there is no permission 'toolManager:exekute'",
        "did you mean",
    ),
    in_manifest(
        "an outlet that is misspelt",
        'permissions:\n  ui:\n    inject: ["node:headr:left"]\n',
        8,
        "there is no outlet 'node:headr:left'",
        "did you mean node:header:left?",
    ),
    in_manifest(
        "the version of another host",
        "icon: a\nruntime: {wire: 2}\n",
        1,
        "the wire version 2",
        "install a version of NAME",
    ),
    in_manifest("an icon that is none", "icon: NoIcon\n", 6, "the name of an icon", "one or two letters, an emoji"),
    in_manifest("a path out of the folder", "tools: {entry: ../tools}\n", 6, "tools.entry", "must be a path inside"),
    in_manifest(
        "an event's pattern",
        'permissions:\n  events:\n    subscribe: ["*_ERROR"]\n',
        8,
        "permissions.events.subscribe.0",
        "or begin one and end with '*'",
    ),
    in_manifest(
        "a front end without files",
        "frontend: {type: vanilla, vanilla: {entry: index.js, rootDir: web}}\n",
        6,
        "frontend: there is no file 'index.js'",
        "name a file that is there",
    ),
    Mistake(
        "a folder that no entry names",
        {"tools/a.tool.json": "{}"},
        "plugin.yaml",
        1,
        "there is a folder 'tools' that no entry names",
        "add the line `tools: {entry: ./tools}`",
        "manifest",
    ),
)

CODE = (
    in_code(
        "an import that fails", "import nothing_like_it\n", 4, "No module named 'nothing_like_it'", "mend it there"
    ),
    in_code("no Python", "def f(:\n    pass\n", 4, "SyntaxError", "mend it there"),
    in_code(
        "a hook that is misspelt",
        "@hookimpl\ndef tavern_on_logins(login): ...\n",
        4,
        "there is no hook 'tavern_on_logins'",
        "did you mean tavern_on_login?",
    ),
    in_code(
        "an argument that a hook has not",
        "@hookimpl\ndef tavern_startup(kontext): ...\n",
        4,
        "the hook tavern_startup has no argument 'kontext'",
        "it has context",
        **asks("host:startup"),
    ),
    in_code(
        "a hook without its permission",
        "@hookimpl\ndef tavern_startup(): ...\n",
        4,
        "the hook tavern_startup is not declared",
        'add "hook:server:host:startup" to permissions.hooks',
    ),
    in_code(
        "a hook without its mark",
        "def tavern_startup(): ...\n",
        4,
        "it has the name of a hook and is not marked",
        "write @hookimpl above it",
        **asks("host:startup"),
    ),
    Mistake(
        "a hook without its mark in another module",
        {"__init__.py": "", "parts.py": "def tavern_startup(): ...\n"},
        "parts.py",
        1,
        "tavern_startup has the name of a hook and is not marked",
        "write @hookimpl above it, and import it in PKG/__init__.py",
        "stray-hook",
        asks("host:startup"),
    ),
    in_code(
        "a hook in a class",
        "class A:\n    @hookimpl\n    def tavern_startup(self): ...\n",
        5,
        "it is marked with @hookimpl and would never be called",
        "define it in",
        **asks("host:startup"),
    ),
    in_code(
        "a hook that yields",
        "@hookimpl\ndef tavern_startup():\n    yield\n",
        4,
        "a hookimpl returns, it does not yield",
        "return a value from a plain hookimpl",
        **asks("host:startup"),
    ),
    in_code(
        "an answer of another type",
        "@hookimpl\ndef tavern_register_commands():\n    return {}\n",
        4,
        "expected a list of CommandInfo or None, found dict",
        "expected a list",
        **asks(COMMANDS),
    ),
    in_code(
        "a command whose handler is misspelt",
        "def hello(): ...\n\n\n@hookimpl\ndef tavern_register_commands():\n"
        "    return [CommandInfo(name='a', help='A.', handler=__name__ + ':helo')]\n",
        7,
        "there is no handler",
        "did you mean hello?",
        **asks(COMMANDS),
    ),
    in_code(
        "a command of the host's",
        "def hello(): ...\n\n\n@hookimpl\ndef tavern_register_commands():\n"
        "    return [CommandInfo(name='serve a', help='A.', handler=hello)]\n",
        7,
        "the command 'serve a' belongs to the host",
        "begin it with another word",
        **asks(COMMANDS),
    ),
    in_code(
        "a route of another plugin",
        "def hello(): ...\n\n\n@hookimpl\ndef tavern_register_routes():\n"
        "    return [RouteInfo(method='GET', path='/api/hello', handler=hello)]\n",
        7,
        "/api/hello",
        "/api/x/NAME/",
        **asks("routes:register"),
    ),
    in_code(
        "a service that nobody knows",
        "class A: ...\n\n\n@hookimpl\ndef tavern_register_services():\n"
        "    return [ServiceInfo(service='toolManger', handler=A)]\n",
        7,
        "there is no service 'toolManger'",
        "did you mean toolManager?",
        **asks(SERVICES),
    ),
    in_code(
        "an override without a method",
        "class Mine:\n    async def list_nodes(self): ...\n\n\n@hookimpl\ndef tavern_override_services():\n"
        "    return [ServiceInfo(service='nodeManager', handler=Mine)]\n",
        8,
        "get",
        "nodeManager",
        **asks(services={"override": ["nodeManager"]}),
    ),
    in_code(
        "an override with other parameters",
        "class Mine:\n    async def list_nodes(self, which): ...\n    async def get(self, full_type): ...\n"
        "    async def act(self, full_type, action, *, inputs, config, call=None): ...\n\n\n@hookimpl\n"
        "def tavern_override_services():\n    return [ServiceInfo(service='nodeManager', handler=Mine)]\n",
        10,
        "list_nodes",
        "which",
        **asks(services={"override": ["nodeManager"]}),
    ),
    in_code(
        "an override that is not declared",
        "class Mine: ...\n\n\n@hookimpl\ndef tavern_override_services():\n"
        "    return [ServiceInfo(service='nodeManager', handler=Mine)]\n",
        7,
        "the override of nodeManager is not declared",
        "add it to permissions.services.override",
        **asks(services={"override": ["toolManager"]}),
    ),
    in_code(
        "a filter that blocks",
        "import time\n\n\n@hookimpl\ndef tavern_before_execute(request):\n    time.sleep(1)\n",
        9,
        "time.sleep in the filter tavern_before_execute keeps the whole host waiting",
        "await asyncio.sleep",
        "blocking-call",
        **asks(EXECUTE),
    ),
    Mistake(
        "an async function that blocks",
        {"__init__.py": "", "a.py": "import time\n\n\nasync def f():\n    time.sleep(1)\n"},
        "a.py",
        5,
        "time.sleep in the async function f keeps the whole host waiting",
        "await asyncio.sleep",
        "blocking-call",
        level="warning",
    ),
    in_code(
        "a call without its permission",
        "async def f(context, request, call):\n    tools = context.services.get(TOOL_MANAGER)\n"
        "    await tools.call(request, call=call)\n",
        6,
        "toolManager.call needs the permission toolManager:execute",
        'add "toolManager:execute" to permissions.services.use',
        "missing-permission",
    ),
    in_code(
        "a method that a service has not",
        "async def f(context):\n    return await context.services.get(NODE_MANAGER).list_node()\n",
        5,
        "nodeManager has no method 'list_node'",
        "did you mean list_nodes?",
        "missing-permission",
    ),
    in_code(
        "an event without its permission",
        "async def f(context):\n    async for event in context.events.subscribe('NODE_ERROR'):\n        print(event)\n",
        5,
        "events.subscribe of NODE_ERROR needs a permission",
        'add "NODE_ERROR" to permissions.events.subscribe',
        "missing-permission",
    ),
    Mistake(
        "a permission that nothing uses",
        {"__init__.py": ""},
        "plugin.yaml",
        1,
        "it asks for hook:server:workflow:before-execute, and nothing in it uses that",
        "leave it out",
        "unused-permission",
        asks(EXECUTE),
        "warning",
    ),
    Mistake(
        "an import that moved",
        {"__init__.py": "", "a.py": "from tavern_host.contracts.llm import LlmRequest\n"},
        "a.py",
        1,
        "tavern_host.contracts.llm moved to tavern_llm.api.llm",
        "from tavern_llm.api.llm import LlmRequest",
        "moved-import",
        level="warning",
    ),
)

NODE = (
    "from tavern_host import node\n\n\n@node(category='Text')\ndef {}(text: {}) -> str:\n    'Text.'\n    return text\n"
)
CONTRIBUTIONS = (
    Mistake(
        "a node with an input of no type",
        {"__init__.py": "", "nodes/__init__.py": NODE.format("turn", "set")},
        "nodes/__init__.py",
        4,
        "slot 'text': <class 'set'> has no data-flow type",
        "use str, int, float",
        "hooks",
        NODES,
    ),
    Mistake(
        "two nodes of one type",
        {
            "__init__.py": "",
            "nodes/__init__.py": "",
            "nodes/a.py": NODE.format("turn", "str"),
            "nodes/b.py": NODE.format("turn", "str"),
        },
        "nodes/b.py",
        4,
        "the node type 'NAME:Turn' is registered twice; the first is used, which is in PATH/nodes/a.py:4",
        "give one of them another name",
        "nodes",
        NODES,
    ),
    Mistake(
        "a node without a description",
        {"__init__.py": "", "nodes/__init__.py": NODE.format("turn", "str").replace("    'Text.'\n", "")},
        "nodes/__init__.py",
        5,
        "the node turn has no docstring",
        "what creators and agents read about it",
        "described-nodes",
        NODES,
        "warning",
    ),
    Mistake(
        "a tool that is no JSON",
        {"tools/a.tool.json": '{\n  "id": "a"\n  "tags": []\n}'},
        "tools/a.tool.json",
        3,
        "is not JSON",
        "mend the JSON at this place",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a tool of a kind that there is not",
        tool('  "implementation": {\n    "type": "scirpt", "scriptPath": "a.py"}'),
        "tools/a.tool.json",
        4,
        "scirpt",
        "docs/tools.md",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a script that is not there",
        tool('  "implementation": {\n    "type": "script",\n    "scriptPath": "gone.py"}'),
        "tools/a.tool.json",
        5,
        "there is no script 'gone.py'",
        "write the script, or correct its path",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a service that is misspelt",
        tool('  "implementation": {\n    "type": "service",\n    "service": "projectFile", "method": "list_files"}'),
        "tools/a.tool.json",
        5,
        "projectFile",
        "did you mean projectFiles",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a method that is misspelt",
        tool('  "implementation": {\n    "type": "service", "service": "projectFiles",\n    "method": "reed_file"}'),
        "tools/a.tool.json",
        5,
        "there is no method of projectFiles 'reed_file'",
        "did you mean read_file",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a method without its permission",
        tool('  "implementation": {\n    "type": "service", "service": "projectFiles",\n    "method": "read_file"}'),
        "tools/a.tool.json",
        4,
        "lacks the permission services.use: projectFiles:read",
        "add it to permissions.services.use",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a node that is not there",
        tool('  "implementation": {\n    "type": "node",\n    "nodeType": "NAME:Gone"}'),
        "tools/a.tool.json",
        5,
        "there is no node NAME:Gone",
        "correct the type, or add the node",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a workflow that is not there",
        tool('  "implementation": {\n    "type": "workflow",\n    "workflowId": "gone"}'),
        "tools/a.tool.json",
        5,
        "there is no workflow gone",
        "correct the id, or add the workflow",
        "tools",
        TOOLS,
    ),
    Mistake(
        "two tools of one id",
        {
            f"tools/{file}.tool.json": '{\n  "id": "NAME:a",\n  "implementation": '
            '{"type": "node", "nodeType": "core:TextMerge"}}'
            for file in "ab"
        },
        "tools/b.tool.json",
        2,
        'the tool "NAME:a" is defined in',
        "give one of them another id or version",
        "tools",
        TOOLS,
    ),
    Mistake(
        "the schema of a parameter",
        tool(
            '  "implementation": {"type": "node", "nodeType": "core:TextMerge"},\n  "parameters": {\n'
            '    "type": "objekt"}'
        ),
        "tools/a.tool.json",
        5,
        "$.parameters.type",
        "objekt",
        "tools",
        TOOLS,
    ),
    Mistake(
        "a workflow that is no JSON",
        {"workflows/a-NAME.json": '{\n  "name": "A",\n  "nodes": [}\n'},
        "workflows/a-NAME.json",
        3,
        "is not JSON",
        "mend the JSON at this place",
        "workflows",
        FLOWS,
    ),
    Mistake(
        "a node's type in a workflow",
        workflow({"id": "n", "type": "core:TextMrege"}, edges=[]),
        "workflows/a-NAME.json",
        4,
        "there is no node type 'core:TextMrege'",
        "did you mean core:TextMerge",
        "workflows",
        FLOWS,
    ),
    Mistake(
        "an output that nothing feeds",
        workflow(OUT, edges=[], interfaceOutputs={"text": {"dataFlowType": "STRING"}}),
        "workflows/a-NAME.json",
        7,
        "nothing feeds the interface output 'text'",
        "draw an edge to it, or remove it",
        "workflows",
        FLOWS,
        "warning",
    ),
    Mistake(
        "an edge from nowhere",
        workflow(
            {"id": "n", "type": "core:TextMerge"},
            OUT,
            edges=[{"id": "e", "source": "gone", "sourceHandle": "x", "target": "out", "targetHandle": "text"}],
        ),
        "workflows/a-NAME.json",
        7,
        "gone",
        "docs/workflows.md",
        "workflows",
        FLOWS,
    ),
    Mistake(
        "a node without a type",
        workflow({"id": "n"}, edges=[]),
        "workflows/a-NAME.json",
        4,
        "$.nodes[0].type",
        "docs/workflows.md",
        "workflows",
        FLOWS,
    ),
    Mistake(
        "an agent that is no JSON",
        {"agents/a.json": '{\n  "id": "a",\n}\n', "workflows/x-NAME.json": DELIBERATION},
        "agents/a.json",
        3,
        "is not JSON",
        "mend the JSON at this place",
        "agents",
        AGENTS,
    ),
    Mistake(
        "an agent without its name",
        {
            "agents/a.json": '{\n "id": "a", "version": "1", "schema_version": "1.0", "tool_ids_inventory": [],\n'
            ' "core_deliberation_workflow_id": "x"}',
            "workflows/x-NAME.json": DELIBERATION,
        },
        "agents/a.json",
        1,
        "$.name: is missing",
        "add it",
        "agents",
        AGENTS,
    ),
    Mistake(
        "an agent's workflow",
        agent(core_deliberation_workflow_id="deliberat-NAME"),
        "agents/a.json",
        7,
        "there is no workflow 'deliberat-NAME'",
        "did you mean",
        "agents",
        AGENTS,
    ),
    Mistake(
        "an agent's tool",
        agent(tool_ids_inventory=["system:get_tool_detials"]),
        "agents/a.json",
        7,
        "there is no tool 'system:get_tool_detials'",
        "did you mean",
        "agents",
        AGENTS,
        "warning",
    ),
    Mistake(
        "a field of an agent that is misspelt",
        agent(mission="", tool_inventory=[]),
        "agents/a.json",
        9,
        "is not a field of a profile and is left unread",
        "did you mean",
        "agents",
        AGENTS,
        "warning",
    ),
    Mistake(
        "a knowledge base that is no JSON",
        {"knowledge/a.json": '{\n  "entries": [\n    {"id": "a" "b"}\n  ]\n}\n'},
        "knowledge/a.json",
        3,
        "it is not JSON",
        "mend the JSON at this place",
        "knowledge",
        BASES,
    ),
    Mistake(
        "two entries of one id",
        {
            "knowledge/a.json": '{\n  "entries": [\n    {"id": "a", "content": {"value": "A"}},\n'
            '    {"id": "a", "content": {"value": "B"}}\n  ]\n}\n'
        },
        "knowledge/a.json",
        4,
        "is the id of another entry as well",
        "docs/knowledge.md",
        "knowledge",
        BASES,
    ),
    Mistake(
        "an entry whose text is none",
        {"knowledge/a.json": '{\n  "entries": [\n    {"id": "a", "content": {"value": 5}}\n  ]\n}\n'},
        "knowledge/a.json",
        3,
        "$.entries[0]",
        "docs/knowledge.md",
        "knowledge",
        BASES,
    ),
    Mistake(
        "a trigger of a kind that there is not",
        {"triggers/a.json": '{\n  "name": "A",\n  "kind": "shedule",\n  "workflow": "x"\n}\n'},
        "triggers/a.json",
        3,
        "there is no kind 'shedule'",
        "did you mean schedule",
        "triggers",
        TRIGGERS,
    ),
    Mistake(
        "a schedule that cannot be",
        {
            "triggers/a.json": '{\n  "name": "A",\n  "kind": "schedule",\n  "config": {\n    "cron": "61 * * * *"},\n'
            '  "workflow": "x"\n}\n'
        },
        "triggers/a.json",
        5,
        "61",
        "docs/triggers.md",
        "triggers",
        TRIGGERS,
    ),
    Mistake(
        "what a trigger starts",
        {
            "triggers/a.json": '{\n  "name": "A",\n  "kind": "schedule",\n  "config": {"cron": "1 * * * *"},\n'
            '  "workflow": "gone-of-NAME"\n}\n'
        },
        "triggers/a.json",
        5,
        "there is no workflow 'gone-of-NAME'",
        "add it to the plugin",
        "triggers",
        TRIGGERS,
    ),
)

PAGE = (
    in_page("a bracket that is not closed", "const a = [1, 2;", "not valid JavaScript", "mend it there"),
    in_page(
        "an outlet that is not there",
        'api.ui.registerOutletComponent("layout:header:rigt", () => null);',
        "there is no outlet 'layout:header:rigt'",
        "did you mean layout:header:right?",
    ),
    in_page(
        "a part that is not there",
        'api.ui.wrapComponent("ui:StatusBr", (one) => one);',
        "there is no component 'ui:StatusBr'",
        "did you mean ui:StatusBar?",
    ),
    in_page(
        "a wrap without its permission",
        'api.ui.wrapComponent("ui:StatusBar", (one) => one);',
        'wrapComponent("ui:StatusBar") needs a permission',
        'add "ui:StatusBar" to permissions.ui.wrap',
    ),
    in_page(
        "a client hook that is misspelt",
        'api.hooks.on("auth:logn", () => {});',
        "there is no client hook 'auth:logn'",
        "did you mean auth:login?",
    ),
    in_page(
        "a client hook without its permission",
        'api.hooks.on("auth:login", () => {});',
        'on("auth:login") needs a permission',
        'add "hook:client:auth:login" to permissions.hooks',
    ),
    in_page(
        "an event of the page without its permission",
        'api.services.get("events").on(["NODE_ERROR"], () => {});',
        'on("NODE_ERROR") needs a permission',
        'add "NODE_ERROR" to permissions.events.subscribe',
    ),
    in_page(
        "a client service that is misspelt",
        'api.services.get("workflowManger");',
        "there is no client service 'workflowManger'",
        "did you mean workflowManager?",
    ),
    Mistake(
        "an outlet in TypeScript",
        {
            "frontend/index.ts": "export default (api: ExtensionApi): void => {\n  api.ui.registerOutletComponent(\n"
            "    'node:foter', h);\n};\n"
        },
        "frontend/index.ts",
        3,
        "there is no outlet 'node:foter'",
        "did you mean node:footer?",
        "front-end",
        VITE,
    ),
    Mistake(
        "an outlet in Vue",
        {
            "frontend/index.ts": "",
            "frontend/A.vue": '<template><b>A</b></template>\n<script setup lang="ts">\n'
            'api.ui.wrapComponent("ui:StatusBar", (one: Component) => one)\n</script>\n',
        },
        "frontend/A.vue",
        3,
        'wrapComponent("ui:StatusBar") needs a permission',
        'add "ui:StatusBar" to permissions.ui.wrap',
        "front-end",
        VITE,
    ),
)

MISTAKES = (*MANIFEST, *CODE, *CONTRIBUTIONS, *PAGE)
