"""Scripts that tools are drafted from: a sandbox reads them, and nothing runs them."""

from __future__ import annotations

import pytest

from tavern_host.contracts.errors import InvalidInput
from tavern_tools.editor.drafting import draft, read_python


async def test_code_is_read_and_never_run() -> None:
    found = await draft("raise SystemExit(3)\ndef run(a: int): ...", "python", None)
    assert found.entry_point == "run"
    for code, message in (("\ndef (:", "line 2: invalid syntax"), ("#" * 300_000, "larger than 256 KiB")):
        with pytest.raises(InvalidInput, match=message):
            await draft(code, "python", None)
    for deep in ("-" * 100_000 + "1", "a" + "()" * 60_000, "(" * 5_000):
        assert "error" in await read_python(deep)
