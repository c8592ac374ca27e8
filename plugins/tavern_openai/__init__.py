"""OpenAI's API over HTTP for what the operator offers: chat completions, responses, embeddings and the list of models.

A model is an agent, a workflow or a language model of the project. Decides nothing about who may use which: the list of
what is offered is the one that MCP clients get, and rights, budgets and limits are those of the services.
"""

from __future__ import annotations

from typing import Any

from tavern_host import RouteInfo, hookimpl

_EVENTS = "application/json, text/event-stream"


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of OpenAI's API."""
    rows: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
        ("GET", "models", "list_models", "The models that are offered, as OpenAI's API lists them.", {}),
        ("GET", "models/{model}", "get_model", "One of the models that are offered.", {}),
        ("GET", "models/{kind}/{model}", "get_model", "An agent or a workflow that is offered.", {}),
        (
            "POST",
            "chat/completions",
            "chat",
            "A chat completion, whole or as it comes.",
            {"body": "api.requests:ChatBody", "content_type": _EVENTS},
        ),
        (
            "POST",
            "responses",
            "respond",
            "A response of OpenAI's Responses API, without anything kept, whole or as it comes.",
            {"body": "api.requests:ResponsesBody", "content_type": _EVENTS},
        ),
        ("POST", "embeddings", "embed", "The vectors of texts.", {"body": "api.requests:EmbeddingsBody"}),
    )
    form = {"error_type": "application/json", "error_form": "tavern_openai.errors:in_form", "ends_with_client": True}
    return [
        RouteInfo.of_module("tavern_openai.web", method, f"/v1/{path}", handler, summary, {**form, **more})
        for method, path, handler, summary, more in rows
    ]
