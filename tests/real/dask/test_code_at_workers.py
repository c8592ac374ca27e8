"""The code of nodes at workers: what was reviewed, and nothing else; the versions that the host has."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tavern_dask import code
from tavern_dask.code import Code, Shipping, opened
from tavern_engine.api.clusters import NodeSource, Values
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable
from tavern_host.contracts.nodes import NodeDefinition


class Client:
    """Takes the plugins that are sent to workers, and sets them up here."""

    def __init__(self, change: bytes | None = None) -> None:
        self.names: list[str] = []
        self._change = change

    async def register_plugin(self, plugin: Code, name: str) -> None:
        self.names.append(name)
        if self._change is not None:
            plugin.folders = {key: dict.fromkeys(files, self._change) for key, files in plugin.folders.items()}
        plugin.setup(None)


def source(root: Path, **more: Any) -> NodeSource:
    """Return the node of a plugin in a folder, which was reviewed."""
    (root / "nodes.py").write_text(
        "from tavern_host import node\n\n@node()\ndef hello(value: str) -> str:\n    return value\n"
    )
    reviewed = {"nodes.py": hashlib.sha256((root / "nodes.py").read_bytes()).hexdigest()}
    definition = NodeDefinition(type="Hello", namespace="hello", handler="tavern_plugins.hello_2.nodes:hello")
    about = {"plugin": "hello", "code": "1.0, sha256:abc", "package": "tavern_plugins.hello_2", "folder": str(root)}
    return NodeSource(definition=definition, reviewed=reviewed, **about | more)


async def test_a_reviewed_folder_is_sent_once(tmp_path: Path) -> None:
    client = Client()
    shipping = Shipping(client)
    (name,) = await shipping.ship((source(tmp_path),))
    assert await shipping.ship((source(tmp_path),)) == [name] and len(client.names) == 1
    instance = opened(name, Values(), None)
    assert await instance.run({"value": "a"}, None) == {"result": "a"}
    assert opened(name, Values(), None) is instance
    with pytest.raises(ServiceUnavailable, match="its code did not come"):
        opened("another", Values(), None)


async def test_code_that_was_not_reviewed_is_refused(tmp_path: Path) -> None:
    described = source(tmp_path)
    (tmp_path / "nodes.py").write_text("raise SystemExit\n")
    with pytest.raises(InvalidInput, match=r"nodes\.py of hello was changed after it was reviewed"):
        await Shipping(Client()).ship((described,))
    described = source(tmp_path, code="on the way")
    (name,) = await Shipping(Client(change=b"raise SystemExit\n")).ship((described,))
    code._imported.clear()
    with pytest.raises(InvalidInput, match="is not what was sent"):
        opened(name, Values(), None)


async def test_an_installed_plugin_has_the_hosts_version(tmp_path: Path) -> None:
    definition = NodeDefinition(type="UpperCase", namespace="core", handler="tavern_nodes.nodes.text:upper_case")
    versions = {"9.9": definition, "1.0": definition.model_copy(update={"handler": "acme_absent.nodes:node"})}
    sources = [NodeSource(plugin="tavern-nodes", code=code, definition=known) for code, known in versions.items()]
    names = await Shipping(Client()).ship(tuple(sources))
    with pytest.raises(ServiceUnavailable, match=r"the worker has tavern-nodes .*, the host 9\.9"):
        opened(names[0], Values(), None)
    with pytest.raises(ServiceUnavailable, match=r"the worker lacks tavern-nodes 1\.0"):
        opened(names[1], Values(), None)
