"""The `llm` service with its adapters `openai` and `scripted`, and the node `core:LlmApiRequest`.

Which models there are is a setting; this plugin holds no prompts and no conversation.
"""

from __future__ import annotations

from tavern_host import ServiceInfo, hookimpl, service_info
from tavern_host.contracts.llm import LLM, LlmAdapterInfo


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the `llm` service."""
    return [service_info(LLM, "tavern_llm.service:LlmService")]


@hookimpl
def tavern_register_llm_adapters() -> list[LlmAdapterInfo]:
    """Return the adapters that come with the host."""
    return [
        LlmAdapterInfo(
            name="openai",
            handler="tavern_llm.openai:OpenAiAdapter",
            description="Any server that speaks OpenAI's chat completions over HTTP.",
            network=True,
        ),
        LlmAdapterInfo(
            name="scripted",
            handler="tavern_llm.scripted:ScriptedAdapter",
            description="Replies from a YAML file of the project, chosen by what was said.",
            network=False,
        ),
    ]
