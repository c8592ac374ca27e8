"""The code of nodes at workers: installed plugins are imported, folder plugins are shipped as the files that were
reviewed, by the hash of their contents. What differs by one byte from what was reviewed is not imported."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
import threading
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from distributed import Client, Worker
from distributed.diagnostics.plugin import WorkerPlugin

from tavern_engine.api.clusters import NodeSource, Values
from tavern_host.contracts.contributions import kind_of
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable
from tavern_host.contracts.nodes import NodeDefinition, NodeInstance, NodeRunner
from tavern_host.contracts.plugins import MANIFEST
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.folder_import import import_folder
from tavern_host.runtime.installed import first_party_part
from tavern_host.runtime.source import FolderSource
from tavern_host.storage.values import decode_loose

MOST = 64 * 2**20
"""How many bytes the files of a plugin may have that is shipped."""

_OPEN = 1000
"""How many nodes with a configuration of their own stay open at a worker."""


class Code(WorkerPlugin):  # type: ignore[misc]  # Dask is not typed
    """Brings code to a worker, those that join later too: by hash the descriptions of node types, and the files of
    the folder plugins that these are in."""

    def __init__(self, sources: dict[str, bytes], folders: dict[str, dict[str, bytes]]) -> None:
        self.sources = sources
        self.folders = folders

    def setup(self, worker: Worker) -> None:
        """Take the code, where it is not there; nothing is imported before it is needed."""
        with _lock:
            _sources.update(self.sources)
            _folders.update(self.folders)


class Shipping:
    """Ships code to the workers of one client, each piece once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._shipped: set[str] = set()

    async def ship(self, sources: tuple[NodeSource, ...]) -> list[str]:
        """Return the names of node types at the workers. Raises `InvalidInput` for files that are not as reviewed."""
        names, new, folders = [], {}, {}
        for source in sources:
            if source.folder is not None:
                files = _files(source)
                folder = _digest({path: hashlib.sha256(content).hexdigest() for path, content in files.items()})
                if folder not in self._shipped:
                    folders[folder] = files
                source = source.model_copy(update={"folder": folder, "reviewed": None})
            encoded = encode(source, NodeSource)
            names.append(hashlib.sha256(encoded).hexdigest())
            if names[-1] not in self._shipped:
                new[names[-1]] = encoded
        if new:
            await self._client.register_plugin(Code(new, folders), name=f"tavern-code-{_digest(dict.fromkeys(new))}")
            self._shipped |= {*new, *folders}
        return names


def _digest(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(sorted(about.items())).encode()).hexdigest()


def _files(source: NodeSource) -> dict[str, bytes]:
    """Return the files of a folder plugin. Raises `InvalidInput` where one is not as it was reviewed."""
    assert source.folder is not None
    root, reviewed, found, size = Path(source.folder), source.reviewed, dict[str, bytes](), 0
    names = reviewed
    if names is None:
        walked = (Path(place, name) for place, _, files in os.walk(root) for name in files)
        names = {str(path.relative_to(root)): "" for path in walked if path.suffix != ".pyc"}
    for name, expected in names.items():
        content = (root / name).read_bytes()
        if expected and hashlib.sha256(content).hexdigest() != expected:
            raise InvalidInput(f"{name} of {source.plugin} was changed after it was reviewed: grant it again")
        found[name] = content
        size += len(content)
        if size > MOST:
            raise InvalidInput(f"{source.plugin} has more than {MOST} bytes of files, too many to go to workers")
    return found


# --- at a worker ------------------------------------------------------------------------------------------

_lock = threading.RLock()
_sources: dict[str, bytes] = {}
_folders: dict[str, dict[str, bytes]] = {}
_imported: dict[str, FolderSource] = {}
"""By the hash of its files where a folder plugin was imported from."""


def opened(name: str, config: Values, context: Any) -> NodeInstance:
    """Return the instance of a node type with a configuration. Raises `ServiceUnavailable` where the code is not there,
    else what the code raises."""
    with _lock:
        return _instance(name, tuple(sorted(config.encoded.items())), context)


@lru_cache(_OPEN)
def _instance(name: str, config: tuple[tuple[str, bytes], ...], context: Any) -> NodeInstance:
    return _runner(name, context).open({key: decode_loose(value, []) for key, value in config})


def _runner(name: str, context: Any) -> NodeRunner:
    if name not in _sources:
        raise ServiceUnavailable("its code did not come to the worker")
    source: NodeSource = decode(_sources[name], NodeSource)
    module, _, path = source.definition.handler.partition(":")
    folder = None
    if source.folder is not None and source.package is not None:
        folder = _imported_folder(source.plugin, source.folder)
        module = folder.package + module.removeprefix(source.package)
    try:
        target: Any = import_module(module)
    except ModuleNotFoundError as error:
        if folder is None and f"{module}.".startswith(f"{error.name}."):
            raise ServiceUnavailable(f"the worker lacks {source.plugin} {source.code}; install it there") from None
        raise
    if folder is None:
        _check_version(source, Path(str(target.__file__)))
    for part in path.split("."):
        target = getattr(target, part)
    opener = first_party_part(str(kind_of(NodeDefinition).opener))
    runner: NodeRunner = opener(target, source.definition, context, folder)
    return runner


def _imported_folder(plugin: str, digest: str) -> FolderSource:
    """Import a folder plugin from the files that came; the import checks each of them against its hash once more."""
    if digest not in _imported:
        files = _folders.get(digest)
        if files is None:
            raise ServiceUnavailable("its code did not come to the worker")
        hashes = {name: hashlib.sha256(content).digest() for name, content in files.items()}
        if _digest({name: value.hex() for name, value in hashes.items()}) != digest:
            raise InvalidInput(f"the code of {plugin} that came to the worker is not what was sent")
        root = Path(tempfile.mkdtemp(prefix="tavern-code-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        for name, content in files.items():
            path = root / name
            if not path.resolve().is_relative_to(root.resolve()):
                raise InvalidInput(f"the code of {plugin} has a file outside of its folder: {name!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        package = f"tavern_plugins.{plugin.replace('-', '_')}_{digest[:12]}"
        import_folder(package, root, hashes)
        _imported[digest] = FolderSource(package, root, hashes)
    return _imported[digest]


def _check_version(source: NodeSource, file: Path) -> None:
    """Raise `ServiceUnavailable` for an installed plugin of another version than the host's."""
    expected = source.code.partition(", ")[0]
    manifest = next((folder / MANIFEST for folder in file.parents if (folder / MANIFEST).is_file()), None)
    found = yaml.safe_load(manifest.read_text(encoding="utf-8")).get("version") if manifest is not None else None
    if str(found) != expected:
        raise ServiceUnavailable(f"the worker has {source.plugin} {found}, the host {expected}; install the same there")
