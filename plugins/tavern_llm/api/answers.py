"""What routes for models take and answer with, beside the models of the service."""

from __future__ import annotations

from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import LlmModelInfo


class Models(Model):
    """The language models that are set up."""

    models: list[LlmModelInfo]
