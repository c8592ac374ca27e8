"""Runs a real OpenAI-compatible server (the package `stubllm`) in a process of its own, for tests.

The server answers by what the conversation holds; see `answer`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.ports import free_port

START_SECONDS = 100.0

_SERVE = "from stubllm.cli import cli; cli()"


@dataclass(frozen=True)
class OpenAiServer:
    """A running server; `base_url` is what the adapter `openai` is set up with."""

    base_url: str

    def hits(self) -> dict[str, int]:
        """Return how often each answer was given, by name."""
        counts: dict[str, int] = self._get("/_stats")["fixture_call_counts"]
        return counts

    def _get(self, path: str) -> Any:
        with _opener().open(self.base_url.removesuffix("/v1") + path, timeout=60) as response:
            return json.load(response)


def answer(name: str, *, said: list[str], content: str, provider: str = "openai", **response: Any) -> dict[str, Any]:
    """Return one answer of the server in the wire of a `provider`: given when each text of `said` is in some message.

    Of several that fit, the one that asks for more is given, so an answer that also wants the words of an
    observation comes after one that does not. Upper and lower case are the same. More of the `response`:
    `http_status`, `error_message`, `stream_chunk_delay_ms`, `usage` …
    """
    messages = [{"content": {"contains": text}} for text in said]
    return {
        "name": name,
        "match": {"provider": provider, "messages": messages},
        "response": {"content": content, "stream_chunk_delay_ms": 0, **response},
    }


@contextmanager
def openai_server(folder: Path, answers: list[dict[str, Any]]) -> Iterator[OpenAiServer]:
    """Run the server on a free port of 127.0.0.1 until the end of the `with`; its files are in `folder`."""
    fixtures = folder / "answers.json"
    fixtures.write_text(json.dumps({"fixtures": answers}), encoding="utf-8")
    log = folder / "openai-server.log"
    with log.open("wb") as output:
        port = free_port()
        options = [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--fixture-file",
            str(fixtures),
            "--log-level",
            "warning",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, "serve", *options],
            cwd=folder,
            env={k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(port, process, log)
            yield OpenAiServer(f"http://127.0.0.1:{port}/v1")
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with _opener().open(f"http://127.0.0.1:{port}/health", timeout=30):
                return
        except (urllib.error.URLError, OSError):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                break
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
