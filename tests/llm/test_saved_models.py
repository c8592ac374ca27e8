"""Adapters and models are checked when their settings are saved, and the shipped LLM nodes run with their defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures

MODELS = "tavern-llm.models"
DEFAULT = "tavern-llm.defaultModel"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "inn"
    assert tavern("init", folder).code == 0
    (folder / "replies.yaml").write_text("- reply: Ahoy\n")
    return folder


def test_adapter_and_model_names_are_checked_when_saved(project: Path) -> None:
    with Failures() as failures:
        for key, value, told in (
            (MODELS, {"m": {"adapter": "opnai"}}, "there is no adapter 'opnai'; there is openai, scripted"),
            (MODELS, {"m": {"model": "x"}}, 'expected an object with "adapter"'),
            (MODELS, {"m": 1}, 'expected an object with "adapter"'),
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
    rows: list[tuple[str, dict[str, object]]] = [
        ("OpenAIChat", {"api_settings": {"use_env_vars": True}, "system_prompt": "Hi", "user_input": "Hello"}),
        ("OpenAI", {"api_settings": {"use_env_vars": True}, "prompt": "Hello"}),
        ("GenericLlmRequest", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("LlmApiRequest", {"messages": [{"role": "user", "content": "Hello"}]}),
    ]

    def write(name: str, values: dict[str, object]) -> None:
        node = {"id": "a", "type": f"core:{name}", "position": {"x": 0, "y": 0}, "inputValues": values}
        (project / "workflows" / "one.json").write_text(json.dumps({"nodes": [node], "edges": []}))

    with Failures() as failures:
        for name, values in rows:
            with failures.row(f"{name} without a model"):
                write(name, values)
                ran = tavern("workflow", "run", "one", cwd=project)
                assert (ran.code, "no language model is set up; `tavern models add" in ran.error) == (
                    1,
                    True,
                )
        setup = json.dumps({"mine": {"adapter": "scripted", "file": "replies.yaml"}})
        assert tavern("settings", "set", MODELS, setup, cwd=project).code == 0
        for name, values in rows:
            with failures.row(name):
                write(name, values)
                ran = tavern("workflow", "run", "one", "--json", cwd=project)
                assert (ran.code, "Ahoy" in ran.out) == (0, True), ran
