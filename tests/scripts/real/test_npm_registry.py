"""Which registry npm says is its own: packages come from there unless something else is set."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tavern_scripts.environments.node_registries import node_registries


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: apt install npm")
def test_without_settings_packages_come_from_the_public_registry(home: Path) -> None:
    (registry,) = node_registries({"HOME": str(home)}).registries

    assert registry.startswith("https://")
    assert node_registries({"HOME": str(home)}).hosts() == {urlsplit(registry).netloc}


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: apt install npm")
def test_beside_those_of_the_settings_the_public_registry_is_reached(home: Path) -> None:
    (home / ".npmrc").write_text("registry=https://npm.example/repo/\n@mine:registry = https://mine.example\n")
    (registry,) = node_registries({"HOME": str(home / "elsewhere")}).registries

    hosts = node_registries({"HOME": str(home)}).hosts()

    assert hosts == {"npm.example", "mine.example", urlsplit(registry).netloc}
