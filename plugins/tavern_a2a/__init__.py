"""The Agent2Agent protocol (A2A, https://a2a-protocol.org) over HTTP for the agents that the operator offers: a card
for each, and its JSON-RPC methods in the forms of the versions 1.0 and 0.3.

A task is a run of an agent and a context is a conversation: both are kept by the plugin of agents, and nothing here.
"""

from __future__ import annotations

from typing import Any

from tavern_host import RouteInfo, hookimpl

_CARD = ".well-known/agent-card.json"


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of agents for other agents."""
    rows: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
        ("GET", f"/{_CARD}", "only_card", "The card of the agent that is offered, where it is the only one.", {}),
        ("GET", "/a2a", "cards", "The cards of the agents that are offered to other agents.", {}),
        ("GET", f"/a2a/{{agent}}/{_CARD}", "card", "The card of an agent that is offered.", {}),
        (
            "POST",
            "/a2a/{agent}",
            "answer",
            "A JSON-RPC request of the Agent2Agent protocol to an agent.",
            {"body": "api.requests:RpcBody", "content_type": "application/json, text/event-stream"},
        ),
    )
    return [RouteInfo.of_module("tavern_a2a.web", *row) for row in rows]
