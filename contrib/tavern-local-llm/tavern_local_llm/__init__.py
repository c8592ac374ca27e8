"""The adapter `local`: SmolLM2-135M-Instruct, served by llama.cpp in a process of its own."""

from __future__ import annotations

from tavern_host import hookimpl
from tavern_llm.api.llm import LlmAdapterInfo


@hookimpl
def tavern_register_llm_adapters() -> list[LlmAdapterInfo]:
    """Return the adapter. It reaches no network, so that a project may set it up."""
    return [
        LlmAdapterInfo(
            name="local",
            handler=f"{__name__}.adapter:LocalAdapter",
            description="SmolLM2-135M-Instruct on this machine, for trials: quick to start, easily wrong.",
            network=False,
        )
    ]
