"""Adapters and models are checked when their settings are saved, and the shipped LLM nodes run with their defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.workflow_documents import workflow_document

MODELS = "tavern-llm.models"
DEFAULT = "tavern-llm.defaultModel"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    (folder / "replies.yaml").write_text("- reply: Ahoy\n")
    return folder


def test_adapter_and_model_names_are_checked_when_saved(project: Path) -> None:
    with Failures() as failures:
        for key, value, told in (
            (
                MODELS,
                {"m": {"adapter": "opnai"}},
                "there is no adapter 'opnai'; there is anthropic, gemini, openai, openai-responses, scripted",
            ),
            (MODELS, [1], "expected an object of models by name"),
            (DEFAULT, "m", "no language model is set up; `tavern models add NAME"),
            (MODELS, {"mine": {"adapter": "scripted", "file": "replies.yaml"}}, None),
            (DEFAULT, "mime", "there is no language model 'mime' (did you mean mine?)"),
            (DEFAULT, "mine", None),
            (DEFAULT, "", None),
        ):
            with failures.row(f"{key} {value}"):
                text = value if isinstance(value, str) else json.dumps(value)
                ran = tavern("settings", "set", key, text, cwd=project)
                assert ran.code == (1 if told else 0), ran
                assert told is None or told in ran.error, ran
    assert tavern("settings", "reset", MODELS, cwd=project).code == 0


def test_llm_nodes_run_with_their_default_model(project: Path) -> None:
    """One workflow has all of them."""
    messages, settings = [{"role": "user", "content": "Hello"}], {"use_env_vars": True}
    rows: dict[str, dict[str, object]] = {
        "OpenAIChat": {"api_settings": settings, "system_prompt": "Hi", "user_input": "Hello"},
        "OpenAI": {"api_settings": settings, "prompt": "Hello"},
        "GenericLlmRequest": {"messages": messages},
        "LlmApiRequest": {"messages": messages},
    }
    nodes = {name: {"type": f"core:{name}", "inputValues": values} for name, values in rows.items()}
    (project / "workflows" / "all.json").write_text(json.dumps(workflow_document(nodes)))
    ran = tavern("workflow", "run", "all", "--json", cwd=project)
    told = {node: done["error"]["message"] for node, done in ran.json()["nodes"].items()}
    assert ran.code == 1 and told.keys() == nodes.keys()
    assert [text for text in told.values() if "no language model is set up; `tavern models add" not in text] == []
    setup = json.dumps({"mine": {"adapter": "scripted", "file": "replies.yaml"}})
    assert tavern("settings", "set", MODELS, setup, cwd=project).code == 0
    ran = tavern("workflow", "run", "all", "--json", cwd=project)
    found = {node: done["output"] for node, done in ran.json()["nodes"].items()}
    assert ran.code == 0 and found.keys() == nodes.keys()
    assert [node for node, output in found.items() if "Ahoy" not in str(output)] == [], ran
