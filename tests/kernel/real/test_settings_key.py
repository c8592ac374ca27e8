"""The key of saved secrets: processes that start at once make one, and what has no secrets imports no encryption."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from helpers.survival import Child, say

from tavern_host.settings.secrets import SecretBox


def encrypt(state: Path, text: str) -> None:
    """Say a text encrypted, once a line is read."""
    sys.stdin.readline()
    say(SecretBox(state).encrypt("x", text))


async def test_concurrent_processes_make_one_key(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        makers = [await stack.enter_async_context(Child(encrypt, tmp_path, str(n))) for n in range(3)]
        for maker in makers:  # all have been started: let them go
            maker.tell()
        tokens = [token for maker in makers for token in await maker.ended()]
    assert [SecretBox(tmp_path).decrypt("x", token) for token in tokens] == ["0", "1", "2"]
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


def test_encryption_is_imported_only_for_secrets(tmp_path: Path) -> None:
    code = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from settings_maker import manifest_with, store_with
acme = manifest_with({"key": "size", "type": "number"}, {"key": "token", "type": "password"})
store = store_with(Path(sys.argv[1]), environment={"extensions.acme.token": "e"})
for key, value in (("size", 5), ("token", "x")):
    asyncio.run(store.save({f"extensions.acme.{key}": value}, encrypted=["extensions.acme.token"]))
    assert store.of(acme).get("size") == 5 and store.problems(acme) == []
    print("cryptography" in sys.modules)
"""
    arguments = [sys.executable, "-c", code, tmp_path, Path(__file__).parents[1]]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True"], done.stderr
