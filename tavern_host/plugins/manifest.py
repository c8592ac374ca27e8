"""Reads a plugin's `plugin.yaml`, and says what is wrong with it. Imports nothing of the plugin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import all_suffixes
from pathlib import Path

from tavern_host.contracts.manifest import ENTRY_FILES, Entry, Frontend, Manifest, ModulesEntry
from tavern_host.contracts.plugins import MANIFEST, Problem
from tavern_host.hookspecs import hooks
from tavern_host.storage.yaml_file import Location, Mistake, Places, read_partly

_CAMEL = re.compile(r"[a-z][A-Za-z0-9]*")
_VERB = re.compile(r"[a-z][a-z-]*")
_SNAKE = re.compile(r"[a-z][a-z0-9_]*")
_MODULE = re.compile(r"[\w.]+")


def own_mistakes(manifest: Manifest, *, first_party: bool = False) -> Iterator[Mistake]:
    """Yield what a plugin declares or publishes under another name than its own, or twice, each with its location; what
    a first-party plugin publishes has any name."""
    prefix, seen = f"extensions.{manifest.name}.", set()
    for index, option in enumerate(manifest.config_options):
        place: Location = ("configOptions", index, "key")
        if not option.key.startswith(prefix) or option.key == prefix:
            yield place, f"configOptions: the key {option.key!r} must begin with '{prefix}'"
        elif option.key in seen:
            yield place, f"configOptions: the key {option.key!r} stands there twice"
        seen.add(option.key)
    if first_party:
        return
    for index, service in enumerate(manifest.publishes.services):
        place = ("publishes", "services", index)
        if not _is_under(f"{manifest.name}.", service.name, _CAMEL):
            text = f"publishes.services: {service.name!r} must be '{manifest.name}.' and a camelCase word"
            yield (*place, "name"), text
            continue
        if service.records:
            text = "publishes.services: records are for first-party plugins, whose names are reserved"
            yield (*place, "records"), text
        for number, permission in enumerate(service.permissions):
            if not _is_under(f"{service.name}:", permission.name, _VERB):
                text = f"publishes.services: {permission.name!r} must be '{service.name}:' and a word"
                yield (*place, "permissions", number, "name"), text
    snake, prefix = f"{manifest.name.replace('-', '_')}_", f"hook:plugin:{manifest.name}:"
    for index, hook in enumerate(manifest.publishes.hooks):
        place = ("publishes", "hooks", index)
        module, _, function = hook.spec.partition(":")
        if not _MODULE.fullmatch(module) or not _is_under(snake, function, _SNAKE):
            yield (*place, "spec"), f"publishes.hooks: {hook.spec!r} must be 'module:{snake}…'"
        if not _is_under(prefix, hook.permission, _VERB):
            yield (*place, "permission"), f"publishes.hooks: {hook.permission!r} must be '{prefix}' and a word"


def _is_under(prefix: str, name: str, rest: re.Pattern[str]) -> bool:
    return name.startswith(prefix) and rest.fullmatch(name, len(prefix)) is not None


def frontend_problems(manifest: Manifest, root: Path, places: Places, *, is_dev: bool = False) -> list[Problem]:
    """Return why a browser could not load the front end of a plugin from its folder `root`."""
    frontend = manifest.frontend or Frontend()
    wanted = frontend.type or ("vanilla" if frontend.vanilla is not None else "vite")
    key = "vanilla" if wanted == "vanilla" else "build"
    part = frontend.vanilla if wanted == "vanilla" else frontend.build
    place: Location = ("frontend", key)

    def problem(place: Location, message: str, hint: str) -> Problem:
        return places.problem(place, message, f"{hint}; the rest of the plugin works")

    if part is None:
        hint = f"say under frontend.{key} which files a browser loads"
        return [problem(place, f"frontend: a {wanted} front end needs {key!r}", hint)]
    if part.entry is None and not part.styles:
        return [problem(place, "frontend.vanilla: there is nothing to load", "give an entry, or styles for a theme")]
    served = root / (frontend.folder() or ".")
    paths: list[tuple[Location, str]] = [((*place, "entry"), part.entry)] if part.entry is not None else []
    paths += [((*place, "styles", i), path) for i, path in enumerate(part.styles)]
    problems = [problem(at, f"{at[0]}.{at[1]}: {what}", hint) for at, what, hint in manifest.frontend_mistakes()]
    if is_dev and frontend.dev is not None:
        served, paths = root, [(("frontend", "dev", "entry"), frontend.dev.entry)]  # nothing need be built
    for place, path in paths:
        file = served / path if _is(Path.is_file, served / path) else root / path
        if not _is(Path.is_file, file):
            hint = "build the front end first" if wanted == "vite" else "name a file that is there"
            problems.append(problem(place, f"frontend: there is no file {path!r}", hint))
        elif not file.resolve().is_relative_to(served.resolve()):
            hint = f"only what is in {served.name} is served"
            problems.append(problem(place, f"frontend: {path!r} is not in {frontend.folder()!r}", hint))
    return problems


def entry_problems(manifest: Manifest, folder: Path, places: Places) -> tuple[list[Problem], list[Problem]]:
    """Return which entries are not in the plugin's folder: modules, without which it cannot be loaded; and what costs
    it no more than these: folders that are not there, or are and have no entry, nor a hook of their kind."""
    modules, folders = [], []
    hooked = {hook.field for hook in hooks().values() if hook.permission in manifest.permissions.hooks}
    for key, files in ENTRY_FILES.items():
        entry: Entry | None = getattr(manifest, key)
        path, rest = Path(entry.entry if entry is not None else key), "the rest of the plugin works"
        if entry is None and key not in hooked and _holds(folder / path, files):
            text = f"{key}: there is a folder {key!r} that no entry names, and nothing in it is used"
            hint = f"add the line `{key}: {{entry: ./{key}}}`, or rename the folder; {rest}"
            folders.append(places.problem((), text, hint))
        elif isinstance(entry, ModulesEntry) and not _is_module(folder, path):
            hint = f"make this module or package in the plugin's folder, or leave `{key}` out"
            modules.append(places.problem((key, "entry"), f"{key}.entry: there is no {path.as_posix()!r}", hint))
        elif entry is not None and not isinstance(entry, ModulesEntry) and not _is(Path.is_dir, folder / path):
            text = f"{key}.entry: there is no folder {path.as_posix()!r}"
            hint = f"make it in the plugin's folder, or leave `{key}` out; {rest}"
            folders.append(places.problem((key, "entry"), text, hint))
    return modules, folders


def _holds(folder: Path, files: str) -> bool:
    return _is(lambda path: any(path.rglob(files)), folder)


def _is_module(folder: Path, entry: Path) -> bool:
    if not entry.name:
        return False  # the package itself
    module = folder / entry.with_suffix("")
    files = (module.with_name(module.name + suffix) for suffix in all_suffixes())
    return _is(Path.is_dir, module) or any(_is(Path.is_file, file) for file in files)


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Return whether a path is of a kind; what cannot be looked at is not."""
    try:
        return kind(path)
    except OSError:  # a name that is too long, a folder that may not be read
        return False


def entry_folders(manifest: Manifest, folder: Path) -> dict[str, Path]:
    """Return the folders of a plugin that its manifest names and that are in it, by the name of the field."""
    found = {key: folder / e.entry for key, e in manifest.entries().items() if not isinstance(e, ModulesEntry)}
    return {key: path for key, path in found.items() if _is(Path.is_dir, path)}


def read_manifest(
    folder: Path, *, is_dev: bool = False, first_party: bool = False
) -> tuple[Manifest, list[Problem], Places]:
    """Return the manifest of a plugin folder, what is wrong with its front end, which costs no more than that, and
    where everything stands in the file.

    Raises `InvalidFile`, `FileNotFoundError`.
    """
    label, part = f"{folder.name}/{MANIFEST}", frozenset({"frontend"})
    check, file = partial(own_mistakes, first_party=first_party), folder / MANIFEST
    manifest, problems, places = read_partly(
        file, Manifest, label=label, dispensable=part, check=check, defaults={"displayName": "?", "version": "0"}
    )
    if manifest.frontend is not None and not problems:
        problems = frontend_problems(manifest, folder, places, is_dev=is_dev)
        if problems:
            manifest = manifest.model_copy(update={"frontend": Frontend()})
    return manifest, problems, places
