"""A folder of made-up installed distributions, some of which are plugins: what `pip install` leaves, without pip."""

from __future__ import annotations

import textwrap
from pathlib import Path

PLUGIN_YAML = """
name: {name}
displayName: Benchmark plugin {number}
version: 1.{number}.0
description: One of the third-party plugins that a start is measured with.
apiVersion: ">=0.1"
nodes: {{entry: ./nodes}}
configOptions:
  - key: extensions.{name}.tone
    type: string
    label: Tone
    description: How the greeting sounds.
    defaultValue: kind
permissions:
  hooks: [{permissions}]
"""

NODES = '''
"""A node."""

from __future__ import annotations

from typing import Annotated

from tavern_host import Slot, node


@node(category="benchmark")
def greet{number}(name: Annotated[str, Slot("Who is greeted.")], tone: str = "kind") -> str:
    """Greet somebody."""
    return f"{{name}}, {{tone}}"
'''

KINDS = (
    (
        ["hook:server:routes:register", "hook:server:commands:register"],
        '''
        """Answers a request and a command."""

        from __future__ import annotations

        from tavern_host import CommandInfo, RouteInfo, hookimpl


        @hookimpl
        def tavern_register_routes() -> list[RouteInfo]:
            return [RouteInfo(method="GET", path="/api/x/{name}/hello", handler="{package}.work:hello")]


        @hookimpl
        def tavern_register_commands() -> list[CommandInfo]:
            return [CommandInfo(name="{name} sync", help="Do nothing.", handler="{package}.work:sync")]
        ''',
    ),
    (
        ["hook:server:workflow:before-execute"],
        '''
        """Looks at each run before it starts."""

        from __future__ import annotations

        from tavern_host import CallContext, PluginContext, hookimpl
        from tavern_host.contracts.executions import RunRequest


        @hookimpl
        async def tavern_before_execute(request: RunRequest, call: CallContext, context: PluginContext) -> None:
            context.log.info("run of %s", request.workflow_id)
        ''',
    ),
    (
        ["hook:server:host:startup", "hook:server:host:shutdown", "hook:server:prompts:register-macros"],
        '''
        """Fills in a macro, and says hello and goodbye."""

        from __future__ import annotations

        from tavern_host import PluginContext, hookimpl
        from tavern_tools.api.macros import PromptMacroInfo


        @hookimpl
        def tavern_register_prompt_macros() -> list[PromptMacroInfo]:
            return [PromptMacroInfo(name="{name}:greeting", handler="{package}.work:greeting")]


        @hookimpl
        async def tavern_startup(context: PluginContext) -> None:
            context.log.info("hello")


        @hookimpl
        async def tavern_shutdown(context: PluginContext) -> None:
            context.log.info("goodbye")
        ''',
    ),
    (
        ["hook:server:nodemanager:before-register", "hook:server:tool:before-call"],
        '''
        """Looks at nodes and at tool calls."""

        from __future__ import annotations

        from tavern_host import NodeDefinition, PluginContext, Veto, hookimpl


        @hookimpl
        def tavern_before_register_node(node: NodeDefinition) -> NodeDefinition | None:
            return None


        @hookimpl
        async def tavern_before_tool_call(context: PluginContext) -> Veto | None:
            return None
        ''',
    ),
)
"""What the plugins do, in turns: hook permissions, and the package's code."""

WORK = '''
"""What is called by name."""

from __future__ import annotations

from typing import Any


def hello(request: Any) -> None:
    """Answer nothing."""


def sync(arguments: Any) -> None:
    """Do nothing."""


def greeting(call: Any) -> str:
    """Greet."""
    return "hello"
'''


def fill_site(site: Path, *, distributions: int, plugins: int) -> list[str]:
    """Write distributions into a folder, the first of them plugins; return the plugins' names."""
    names = []
    for number in range(distributions):
        package = f"benchmark_dist_{number}"
        entry_points = None
        if number < plugins:
            names.append(package.replace("_", "-"))
            _write_plugin(site / package, names[-1], number)
            entry_points = f"[tavern_host.plugins]\n{names[-1]} = {package}\n"
        elif number % 2:  # about half of what people install has entry points, most of them commands
            entry_points = (
                f"[console_scripts]\n{package} = {package}.cli:main\n\n[{package}.extras]\none = {package}.a:B\n"
            )
            _write(site / package / "__init__.py", '"""A library."""\n')
        _write_distribution(site, package, entry_points)
    return names


def _write_plugin(root: Path, name: str, number: int) -> None:
    permissions, code = KINDS[number % len(KINDS)]
    values = {"name": name, "package": root.name, "number": number}
    _write(root / "plugin.yaml", PLUGIN_YAML.format(permissions=", ".join(map(repr, permissions)), **values))
    _write(root / "__init__.py", textwrap.dedent(code).replace("{name}", name).replace("{package}", root.name))
    _write(root / "work.py", WORK)
    _write(root / "nodes" / "__init__.py", "")
    _write(root / "nodes" / "greetings.py", NODES.format(**values))


def _write_distribution(site: Path, name: str, entry_points: str | None) -> None:
    info = site / f"{name}-1.0.0.dist-info"
    described = "A paragraph that describes what this library is good for, and how it is used.\n" * 40
    requires = "".join(f"Requires-Dist: something-{n}>={n}\n" for n in range(5))
    header = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0.0\nSummary: A library.\n{requires}"
    _write(info / "METADATA", f"{header}\n{described}")
    _write(info / "WHEEL", "Wheel-Version: 1.0\nGenerator: benchmark\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    _write(info / "INSTALLER", "pip\n")
    if entry_points is not None:
        _write(info / "entry_points.txt", entry_points)
    files = sorted(str(p.relative_to(site)) for p in [*info.iterdir(), *(site / name).rglob("*")] if p.is_file())
    _write(info / "RECORD", "".join(f"{file},,\n" for file in [*files, f"{info.name}/RECORD"]))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.lstrip("\n"), encoding="utf-8")
