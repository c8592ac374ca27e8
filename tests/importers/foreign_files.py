"""Files as people bring them, small, of every kind that is known: by name their content, and the kind of each."""

from __future__ import annotations

import json
from typing import Any

from tests.characters import card_files
from tests.importers.imports_bench import FILES
from tests.importers.vcp_plugins import CALCULATOR, NOTES
from tests.knowledge import cards, test_lorebooks


def dumped(document: Any) -> bytes:
    """Return a document as JSON."""
    return json.dumps(document, ensure_ascii=False).encode()


def lines(*documents: Any) -> bytes:
    """Return documents as lines of JSON."""
    return b"".join(dumped(one) + b"\n" for one in documents)


def picture(**texts: Any) -> bytes:
    """Return a picture with JSON texts by keyword."""
    return cards.picture(*(cards.chunk(b"tEXt", key.encode() + b"\0" + dumped(one)) for key, one in texts.items()))


def api(version: str, operations: int, title: str = "Things") -> dict[str, Any]:
    """Return the description of an API."""
    done = {"responses": {"200": {"description": "OK"}}}
    paths = {f"/things/{n}": {"get": {"operationId": f"thing{n}", **done}} for n in range(operations)}
    about = {"title": f"{title} {operations}", "version": "1"}
    return {"openapi": version, "info": about, "servers": [{"url": "https://things.example"}], "paths": paths}


def in_yaml(document: Any) -> bytes:
    """Return a document as YAML."""
    import yaml

    return yaml.safe_dump(document, allow_unicode=True).encode()


def bare(card: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a card, as the first version has them."""
    return {key: card["data"][key] for key in ("name", "description", "personality", "scenario", "mes_example")}


_SAMPLES = {path.stem: path.read_bytes() for path in FILES.iterdir()}
_SERVERS = {"notes": {"command": "npx", "args": ["-y", "notes-server"], "env": {"KEY": "secret-of-notes"}}}
_HEAD = {"user_name": "Ada", "character_name": "Mira Vale"}
_TALK = [{"name": "Mira Vale", "is_user": False, "mes": "Come in!"}, {"name": "Ada", "is_user": True, "mes": "Thanks."}]
_GRAPH = {"name": "Lights", "nodes": [{"id": "a", "type": "core:Text", "position": {"x": 0, "y": 0}}], "edges": []}
_COMFY = json.loads(_SAMPLES["comfy_ui"])
_PERSONAS = {
    "personas": {"a.png": "Ada", "b.png": "Bo"},
    "default_persona": "a.png",
    "persona_descriptions": {"a.png": {"description": "A traveller.", "position": 0}, "b.png": {"description": ""}},
}
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
_PROFILE = {"id": "scout", "name": "Scout", "version": "1", "schema_version": "1.0"}
_AT = {"createdAt": "2026-01-01T10:00:00Z", "changedAt": "2026-01-01T10:00:00Z"}
_SAID = {"id": "m1", "message": {"role": "user", "content": "Hello."}, "createdAt": _AT["createdAt"]}
_CONVERSATION = {
    **{"format": "tavern-chat-history", "version": 1, "id": "talk", **_AT, "active": "main", "messages": [_SAID]},
    "branches": [{"name": "main", "head": "m1", **_AT}],
}

KNOWN: dict[str, tuple[str, bytes]] = {
    "card of version 1.json": ("character", dumped(card_files.MIRA)),
    "card without a greeting.json": ("character", dumped(bare(card_files.V2))),
    "card of version 2.json": ("character", dumped(card_files.V2)),
    "card of version 3.json": ("character", dumped(card_files.V3)),
    "card with a mark of byte order.json": ("character", b"\xef\xbb\xbf" + dumped(cards.V2)),
    "card in UTF-16.json": ("character", json.dumps(cards.V3).encode("utf-16")),
    "card.png": ("character-picture", card_files.png()),
    "picture of version 3.png": ("character-picture", card_files.png(card_files.V3, "ccv3", b"iTXt")),
    "animated card.png": ("character-picture", card_files.apng()),
    "card as WebP.webp": ("character-picture", card_files.webp()),
    "card as JPEG.jpeg": ("character-picture", card_files.jpeg()),
    "card in a comment.jpg": ("character-picture", card_files.jpeg_with_comment()),
    "archive.charx": ("character-archive", card_files.charx()),
    "archive behind a picture.charx": ("character-archive", card_files.jpeg() + card_files.charx()),
    "world.json": ("lorebook", dumped(cards.WORLD)),
    "book of a card.json": ("lorebook", dumped(cards.BOOK)),
    "book of version 3.json": ("lorebook", dumped({"spec": "lorebook_v3", "data": cards.BOOK})),
    "novelai.lorebook": ("lorebook", dumped(test_lorebooks.NOVELAI)),
    "agnai.json": ("lorebook", dumped(test_lorebooks.AGNAI)),
    "risu.json": ("lorebook", dumped(test_lorebooks.RISU)),
    "preset.json": ("preset", dumped({"temperature": 1, "prompts": [], "prompt_order": []})),
    "chat.jsonl": ("chat", lines(_HEAD, *_TALK)),
    "group chat.jsonl": ("chat", lines({"chat_metadata": {}}, *_TALK)),
    "chat in UTF-16.jsonl": ("chat", lines(_HEAD, *_TALK).decode().encode("utf-16")),
    "personas.json": ("personas", dumped(_PERSONAS)),
    "comfy.json": ("comfyui", _SAMPLES["comfy_ui"]),
    "comfy api.json": ("comfyui", _SAMPLES["comfy_api"]),
    "request of comfy.json": ("comfyui", dumped({"prompt": json.loads(_SAMPLES["comfy_api"]), "client_id": "x"})),
    "comfy.png": ("comfyui-picture", picture(workflow=_COMFY, prompt=json.loads(_SAMPLES["comfy_api"]))),
    "n8n.json": ("n8n", _SAMPLES["n8n"]),
    "langflow.json": ("langflow", _SAMPLES["langflow"]),
    "dify.yml": ("dify", _SAMPLES["dify"]),
    "claude_desktop_config.json": ("mcp-servers", _SAMPLES["claude_desktop_config"]),
    "mcp.json": ("mcp-servers", dumped({"servers": _SERVERS, "inputs": []})),
    ".mcp.json": ("mcp-servers", dumped({"mcpServers": {"far": {"type": "http", "url": "https://far.example/mcp"}}})),
    "petstore.yaml": ("openapi", _SAMPLES["petstore"]),
    "things.json": ("openapi", dumped(api("3.0.3", 3))),
    "200 things.json": ("openapi", dumped(api("3.1.0", 200))),
    "200 things.yaml": ("openapi", in_yaml(api("3.1.0", 200, "Others"))),
    "functions.json": ("functions", _SAMPLES["functions"]),
    "tools of a request.json": ("functions", dumped({"model": "m", "tools": json.loads(_SAMPLES["functions"])})),
    "tools of Anthropic.json": ("functions", dumped([{"name": "weather", "input_schema": _SCHEMA}])),
    "plugin-manifest.json": ("vcp", dumped(CALCULATOR)),
    "notes of vcp.json": ("vcp", dumped(NOTES)),
    "workflow.json": ("workflow", dumped(_GRAPH)),
    "workflow.png": ("workflow-picture", picture(**{"tavern-workflow": _GRAPH})),
    "agent.json": ("agent", dumped({**_PROFILE, "core_deliberation_workflow_id": "agents/simple"})),
    "conversation.json": ("conversation", dumped(_CONVERSATION)),
    "project.json": ("project", dumped({"format": "tavern-project", "version": "0.1", "files": {"files/a.txt": "a"}})),
    "handbook.md": ("text", b"# Inn\n\nThe door is closed at night.\n"),
    "page.html": ("text", b"<!doctype html><h1>Inn</h1><p>The door is closed at night."),
    "tavern.yaml": ("project-folder", b"name: Inn\n"),
}
"""By name the kind of a file, and its content."""
