"""The hooks that the language models' plugin calls: adapters, and what sees prompts and answers."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.hooks import Veto, hookspec
from tavern_llm.api.llm import LlmAdapterInfo, LlmRequest, LlmResponse


@hookspec(
    permission="hook:server:llm:register-adapters",
    level="add",
    policy="collect",
    caller="llm",
    description="Connect another kind of language model.",
    example="return [LlmAdapterInfo(name='acme', handler='acme_plugin.llm:AcmeAdapter')]",
)
def tavern_register_llm_adapters(context: PluginContext) -> list[LlmAdapterInfo]:
    """Return LLM adapters."""


@hookspec(
    permission="hook:server:llm:before-request",
    level="intercept",
    policy="veto",
    caller="llm",
    description="Read every prompt before it is sent to a language model, change it or refuse it.",
    example="return request.model_copy(update={'model': 'small'})",
)
def tavern_before_llm_request(
    request: LlmRequest, call: CallContext, context: PluginContext
) -> LlmRequest | Veto | None:
    """Return a changed request, `Veto` to refuse it, or None. An error refuses it too."""


@hookspec(
    permission="hook:server:llm:after-response",
    level="intercept",
    policy="veto",
    caller="llm",
    description="Read every answer of a language model, change or withhold it.",
    example="return response.model_copy(update={'text': response.text.strip()})",
)
def tavern_after_llm_response(
    response: LlmResponse, request: LlmRequest, call: CallContext, context: PluginContext
) -> LlmResponse | Veto | None:
    """Return a changed answer, `Veto` to withhold it, or None. A streamed answer is seen when it is whole."""
