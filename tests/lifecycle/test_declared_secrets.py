"""What a plugin declares as a secret once it is reloaded is one for everything that leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lifecycle_maker import plugin

from tavern_host import Host


def declaring(project: Path, **option: Any) -> Path:
    """Write a plugin with one setting."""
    token = {"key": "extensions.acme.token", "label": "Token", **option}
    return plugin(project / "plugins", "acme", "", configOptions=[token])


async def test_a_setting_that_is_declared_a_secret_by_a_reload_is_one(project: Path, operator_folders: Path) -> None:
    (operator_folders / "config").mkdir(parents=True, exist_ok=True)
    (operator_folders / "config" / "host.yaml").write_text("settings: {extensions.acme.token: hunter2-hunter2}\n")
    declaring(project, type="string")
    async with Host(project, trust=["acme"]) as host:
        assert "hunter2-hunter2" not in host.settings.secrets()
        declaring(project, type="password")
        await host.reload("acme")
        assert "hunter2-hunter2" in host.settings.secrets()
