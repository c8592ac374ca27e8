"""Presets of SillyTavern for chat completion as workflows that characters think with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tavern_host.contracts.documents import json_type, read_json, read_model
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.workflows import Workflow
from tavern_knowledge.api.containers import in_utf8
from tavern_knowledge.api.forms import MAX_JSON, form_of, recognise

_PARAMETERS = {
    **{name: name for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty")},
    "openai_max_tokens": "max_tokens",
}
"""What a preset says of the model, and what that is called in a request."""
_WITHOUT_EFFECT = (
    *("top_k", "top_a", "min_p", "repetition_penalty", "seed", "n", "openai_max_context", "assistant_prefill"),
    *("continue_nudge_prompt", "impersonation_prompt", "group_nudge_prompt", "new_chat_prompt", "send_if_empty"),
    *("squash_system_messages", "names_behavior", "continue_prefill", "use_sysprompt", "function_calling"),
)
_USUAL: dict[str, Any] = {"seed": -1, "n": 1, "repetition_penalty": 1}
_TEMPLATE = Path(__file__).parent / "workflows" / "characters" / "conversation.json"


def workflow_of(content: bytes, name: str) -> tuple[Workflow, list[str]]:
    """Return a preset as a workflow, and what of it has no effect. Raises `InvalidInput` for what is no preset."""
    if len(content) > MAX_JSON:
        raise InvalidInput(f"{name}: a preset has at most {MAX_JSON >> 20} MiB")
    content = in_utf8(content)
    form = recognise(content)
    if form is None or form.kind != "preset":
        what = "is no preset of SillyTavern" if form is None else f"is {form.label}; {form.command} takes it"
        raise InvalidInput(f"{name} {what}")
    preset = read_json(content.decode("utf-8-sig"), name)
    assert form_of(preset) is form
    for index, prompt in enumerate(preset["prompts"]):
        if not isinstance(prompt, dict):
            raise InvalidInput(f"{name}: prompts[{index}]: expected an object, got {json_type(prompt)}")
    document = json.loads(_TEMPLATE.read_bytes())
    parameters = {
        ours: preset[theirs] for theirs, ours in _PARAMETERS.items() if isinstance(preset.get(theirs), int | float)
    }
    for node in document["nodes"]:
        if node["id"] == "character":
            kept = ("prompts", "prompt_order", "wi_format", "scenario_format", "personality_format")
            node["inputValues"] = {"preset": {key: preset[key] for key in kept if key in preset}}
        elif node["id"] == "model" and parameters:
            node["inputValues"] = {"parameters": parameters}
    about = f"What a character thinks with, of the preset {name}."
    document |= {"name": name, "description": about, "listed": True}
    named = [key for key in _WITHOUT_EFFECT if preset.get(key) not in (None, "", False, 0, _USUAL.get(key))]
    named += ["extensions"] if preset.get("extensions") else []
    return read_model(Workflow, document, "the workflow"), sorted(named)
