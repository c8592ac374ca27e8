"""The page at `/`, rendered on the server: plugins, nodes, tools, and a place for live events.

Everything that comes from plugins or projects is escaped; the script and the style are files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import urlsplit

from tavern_host import NODE_MANAGER, PLUGINS, TOOL_MANAGER, HttpRequest, HttpResponse, PluginContext
from tavern_host.context import Project
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.plugins import PluginInfo
from tavern_host.contracts.tools import ToolDefinition


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the page. A part whose service nobody provides says so instead of being empty."""
    plugins = await context.services.get(PLUGINS).list_plugins()
    nodes = await context.services.get(NODE_MANAGER).list_nodes() if context.services.has(NODE_MANAGER) else None
    tools = await context.services.get(TOOL_MANAGER).list_tools() if context.services.has(TOOL_MANAGER) else None
    page = _page(
        request,
        context.project,
        [
            _section("Plugins", f"{len(plugins)}", _plugins(plugins)),
            _section("Nodes", _count(nodes), _nodes(nodes)),
            _section("Tools", _count(tools), _tools(tools)),
            _section("Live events", "", '<p id="connection">connecting …</p><ol id="events" aria-live="polite"></ol>'),
        ],
    )
    return HttpResponse(body=page.encode(), content_type="text/html")


async def api(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the page that reads `/api/openapi.json` and sends requests."""
    section = _section(
        "Routes",
        "",
        '<p id="state">reading …</p><input id="search" type="search" hidden '
        'placeholder="Search routes" aria-label="Search routes"><div id="route-list"></div>',
    )
    return HttpResponse(body=_page(request, context.project, [section], "api").encode(), content_type="text/html")


def _page(request: HttpRequest, project: Project, sections: Iterable[str], script: str = "studio") -> str:
    """Return a page of a project, whose script speaks with the server about this one."""
    title, base = escape(f"{project.name} — tavern-host"), escape(urlsplit(request.base).path)
    files, which = f"{base}/projects/{project.id}/plugins/tavern-studio", f"?projectId={project.id}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{files}/icon.svg">
<link rel="stylesheet" href="{files}/studio.css">
<script type="module" src="{files}/{script}.js"></script>
</head>
<body>
<header><h1>tavern-host</h1><p>Project <strong>{escape(project.name)}</strong></p>
<nav><a href="{base}/{which}#plugins">Plugins</a> <a href="{base}/{which}#nodes">Nodes</a> \
<a href="{base}/{which}#tools">Tools</a> <a href="{base}/{which}#live-events">Live events</a> \
<a href="{base}/api/docs{which}">HTTP interface</a></nav></header>
<main>{"".join(sections)}</main>
</body>
</html>
"""


def _section(title: str, count: str, content: str) -> str:
    badge = f' <span class="count">{escape(count)}</span>' if count else ""
    return f'<section id="{escape(title.lower().replace(" ", "-"))}"><h2>{escape(title)}{badge}</h2>{content}</section>'


def _count(items: list[NodeDefinition] | list[ToolDefinition] | None) -> str:
    return "" if items is None else str(len(items))


def _plugins(plugins: list[PluginInfo]) -> str:
    rows = []
    for plugin in plugins:
        reasons = "".join(f"<p>{escape(str(problem))}</p>" for problem in plugin.problems)
        state = plugin.state.value
        rows.append(
            [
                f"<strong>{escape(plugin.display_name)}</strong><br><code>{escape(plugin.name)}</code>"
                f"<p>{escape(plugin.description or '')}</p>",
                escape(plugin.version or "—"),
                f'<span class="state {escape(state)}">{escape(state)}</span>{reasons}',
                _permissions(plugin),
            ]
        )
    return _table(["Plugin", "Version", "State", "Permissions"], rows)


def _permissions(plugin: PluginInfo) -> str:
    if not plugin.permissions:
        return "none"
    items = "".join(
        f'<li class="{"granted" if p.granted else "missing"}"><code>{escape(p.name)}</code> '
        f"<em>{escape(p.level)}</em> — {escape(p.description)}{'' if p.granted else ' <b>not granted</b>'}</li>"
        for p in plugin.permissions
    )
    missing = sum(not p.granted for p in plugin.permissions)
    summary = f"{len(plugin.permissions)} asked for" + (f", {missing} not granted" if missing else "")
    return f"<details><summary>{summary}</summary><ul>{items}</ul></details>"


def _nodes(nodes: list[NodeDefinition] | None) -> str:
    if nodes is None:
        return "<p>No plugin provides the service nodeManager.</p>"
    rows = [
        [
            f"<strong>{escape(node.display_name or node.type)}</strong><br><code>{escape(node.full_type)}</code>",
            escape(node.category),
            escape(", ".join(node.inputs) or "—"),
            escape(", ".join(node.outputs) or "—"),
            escape(node.description.split("\n")[0]),
        ]
        for node in nodes
    ]
    return _table(["Node", "Category", "Inputs", "Outputs", "What it does"], rows)


def _tools(tools: list[ToolDefinition] | None) -> str:
    if tools is None:
        return "<p>No plugin provides the service toolManager.</p>"
    rows = [
        [
            f"<code>{escape(tool.id)}</code>",
            escape(tool.kind),
            escape(tool.description),
            f'<span class="state needs-review">{escape(tool.unavailable)}</span>' if tool.unavailable else "available",
        ]
        for tool in tools
    ]
    return _table(["Tool", "Kind", "What it does", "State"], rows)


def _table(columns: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
