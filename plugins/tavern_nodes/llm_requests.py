"""What the nodes that ask a language model share: requests made of their inputs, and answers as they grow.

The operator of the host configures the servers and their keys, so settings in a workflow that bring their own are
refused by name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from tavern_host import InvalidInput, NodeContext, NodeDefinition
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_llm.api.llm import LLM, Llm, LlmChunk, LlmRequest, LlmResponse
from tavern_nodes.conversation import Message, message, to_chat
from tavern_nodes.documents import plain, read_json
from tavern_nodes.values import MAX_TEXT, bounded, kind_of, show

USE_ENVIRONMENT = "use_env_vars"
"""The one setting that a workflow may make: use what the host has been set up with."""

_REFUSED = frozenset({"apikey", "authorization", "baseurl"})
"""What settings may not say, in small letters and without underscores."""

SETUP_ADVICE = (
    "the operator sets up models, with `tavern models add NAME --url … --key-env …`; then name the model in the node "
    "and switch use_env_vars on"
)


def check_settings(value: Any, where: str) -> None:
    """Raise `InvalidInput` for settings that ask for an address or a key of their own."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object, as APISettings gives it, not {kind_of(value)}")
    if any(value[name] and str(name).lower().replace("_", "") in _REFUSED for name in value):
        raise InvalidInput(f"{where}: addresses and keys are not taken from a workflow; {SETUP_ADVICE}")


class Answer:
    """An answer as it grows; `response` is there once it is whole."""

    def __init__(self) -> None:
        self.response = LlmResponse(text="", model="")
        self._length = 0

    @property
    def text(self) -> str:
        """The text of the whole answer."""
        return self.response.text

    def add(self, chunk: LlmChunk, who: str) -> str:
        """Add a piece; return the text that it adds, for an answer that restarts a line that says so.

        Raises `InvalidInput` where the answer grows over `MAX_TEXT`.
        """
        text = f"\n\n[{chunk.restarted}]\n\n" if chunk.restarted else chunk.text
        self._length += len(text)
        bounded(self._length, MAX_TEXT, who, "characters")
        if chunk.response is not None:
            self.response = chunk.response
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the whole answer as an object with all keys of a response."""
        return self.response.model_dump(mode="json")


async def answer_pieces(
    request: LlmRequest, streams: bool, context: NodeContext, who: str, answer: Answer
) -> AsyncGenerator[str, None]:
    """Fill `answer`; yield its pieces as they come if it `streams`."""
    llm = llm_of(context, who)
    if not streams:
        answer.response = await llm.complete(request, call=context.call)
        return
    chunks = llm.stream(request, call=context.call)
    try:
        async for chunk in chunks:
            if text := answer.add(chunk, who):
                yield text
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def llm_of(context: NodeContext, who: str) -> Llm:
    """Return the service that answers. Raises `ServiceUnavailable`."""
    if not context.plugin.services.has(LLM):
        raise ServiceUnavailable(
            f"{who}: there is no language model: no plugin provides the service llm; enable tavern-llm"
        )
    return context.plugin.services.get(LLM)


def request_from(
    messages: list[Message], inputs: dict[str, Any], definition: NodeDefinition, who: str, names: tuple[str, ...]
) -> LlmRequest:
    """Return the request for `messages`, with the inputs `names` as parameters of the model. Raises `InvalidInput`."""
    if not messages:
        raise InvalidInput(f"{who}: expected at least one message")
    slots = definition.inputs
    model = inputs.get("model", slots["model"].default if "model" in slots else None) or ""
    if not isinstance(model, str):
        raise InvalidInput(f"{who}: the model's name must be text, not {kind_of(model)}")
    parameters = {}
    for name in names:
        value = inputs.get(name, slots[name].default)
        if value is not None:
            parameters[name] = number_input(value, slots[name].data_flow_type, f"{who}: {name}")
    return LlmRequest(messages=to_chat(messages), model=model.strip() or None, parameters=parameters)


async def with_usable_model(request: LlmRequest, definition: NodeDefinition, llm: Llm) -> LlmRequest:
    """Return a request that asks the host's default model, where nobody chose one and the host has not set up the one
    that the definition has as its default."""
    if request.model is None or request.model != definition.inputs["model"].default:
        return request
    if any(model.name == request.model for model in await llm.models()):
        return request
    return request.model_copy(update={"model": None})


def number_input(value: Any, kind: str, where: str) -> float:
    """Return a number of `kind`, INTEGER or FLOAT. Raises `InvalidInput`."""
    wanted = "a whole number" if kind == "INTEGER" else "a number"
    if kind == "INTEGER" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int if kind == "INTEGER" else int | float):
        raise InvalidInput(f"{where}: expected {wanted}, not {show(value)}")
    number: float = value
    return number


def further_parameters(value: Any, where: str) -> dict[str, Any]:
    """Return further parameters from JSON text or an object; a reference of APISettings adds nothing."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    found = read_json(value, where) if isinstance(value, str) else plain(value, where)
    if not isinstance(found, dict):
        raise InvalidInput(f"{where}: expected an object, not {kind_of(found)}")
    check_settings(found, where)
    return {key: item for key, item in found.items() if key != USE_ENVIRONMENT}


def system_messages(inputs: dict[str, Any], who: str) -> list[Message]:
    """Return the system prompt as messages: one, or none where it is blank."""
    prompt = text_input(inputs, "system_prompt", who)
    return [message("system", prompt)] if prompt.strip() else []


def text_input(inputs: dict[str, Any], key: str, who: str) -> str:
    """Return an input that must be text; empty where it is missing. Raises `InvalidInput`."""
    value = inputs.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f"{who}: {key} must be text, not {kind_of(value)}")
    return value


def check_no_image(inputs: dict[str, Any], who: str) -> None:
    """Raise `InvalidInput` where there is an image."""
    if inputs.get("image"):
        raise InvalidInput(f"{who}: image: models are sent text only; leave it empty")
