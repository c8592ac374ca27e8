"""Requests that somebody else's generator makes of the OpenAPI document: each is answered as the document says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from helpers.repetition import repetitions

from tavern_host import Host
from tavern_host.testing.http import TOKEN, served

LEFT_ALONE = "^/ws$|^/api/plugins/|^/plugins/|^/api/projects|^/api/packages|^/api/shutdown"
"""The socket, and what would switch plugins off, install some or open folders."""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


async def _generated(tmp_path: Path, phases: str, examples: int) -> None:
    async with Host(tmp_path / "project", third_party=False, sample=True) as host, served(host) as site:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{site.port}/api/openapi.json"),
            *("--header", f"Authorization: Bearer {TOKEN}", "--exclude-path-regex", LEFT_ALONE, "--checks", CHECKS),
            *("--phases", phases, "--max-examples", str(examples), "--seed", "1", "--request-timeout", "60"),
            *("--suppress-health-check", "all", "--generation-database", "none", "--no-color"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"passed" in said


async def test_generated_requests_are_answered_as_the_document_says(tmp_path: Path) -> None:
    await _generated(tmp_path, "fuzzing", repetitions(1, 50))


@pytest.mark.extended
@pytest.mark.timeout(600)
async def test_requests_that_break_the_document_are_answered_as_it_says(tmp_path: Path) -> None:
    await _generated(tmp_path, "coverage", 3)
