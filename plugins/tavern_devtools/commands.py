"""`tavern plugins new` and `tavern plugins check`: what they say. The work is done in `scaffold` and `inspection`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tavern_devtools.additions import Addition, addition, carry_out, is_plugin
from tavern_devtools.api.findings import Finding
from tavern_devtools.formats import lines, placed, sarif
from tavern_devtools.inspection import Report, candidates, inspected
from tavern_devtools.parts import PARTS, combined
from tavern_devtools.scaffold import Kind, scaffold, write
from tavern_host import CommandOutput, InvalidInput, PluginContext
from tavern_host.contracts.languages import say
from tavern_host.contracts.reviews import outputs_of

FORMATS = ("text", "lines", "sarif")
"""How `plugins check` shows what it found."""


async def new(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Write the files of a new plugin, and say what to do next."""
    parts, ui = [part for part in PARTS if arguments[part]], _ui(arguments["ui"])
    if arguments["minimal"] and (parts or ui):
        given = f"--{parts[0]}" if parts else "--ui"
        raise InvalidInput(f"--minimal has a hook and nothing else: leave out --minimal or {given}")
    shown, folder = _folder_for(arguments["name"], arguments["folder"])
    if (parts or ui) and is_plugin(arguments["name"], folder):
        for output in _added(addition(arguments["name"], parts, ui, folder), folder):
            yield output
        return
    if parts:
        plugin = combined(arguments["name"], parts, ui)
    else:
        plugin = scaffold(arguments["name"], ui or ("minimal" if arguments["minimal"] else "full"))
    write(plugin, folder)
    yield CommandOutput(kind="message", text=f"Made the plugin {plugin.name} in {folder}:")
    for path in plugin.files:
        yield CommandOutput(kind="text", text=f"  {path}")
    yield CommandOutput(kind="message", text="\nNext, in an environment that has tavern-host:")
    steps = (f"cd {shown}", "pip install -e '.[test]'", "pytest", "tavern plugins check .")
    for line in (*steps, f"tavern --dev {plugin.package} serve"):
        yield CommandOutput(kind="text", text=f"  {line}")
    yield CommandOutput(kind="message", text="\nTo give it to others, who decide what it may do when they install it:")
    wheel = f"dist/{plugin.package}-0.1.0-py3-none-any.whl"
    last = (f"pip uninstall {plugin.name}  # which `pip install -e` has put here", f"tavern plugins install {wheel}")
    for line in ("pip wheel . --no-deps -w dist", f"tavern plugins check {wheel}", *last):
        yield CommandOutput(kind="text", text=f"  {line}")
    yield CommandOutput(kind="result", data={"name": plugin.name, "folder": str(folder), "files": [*plugin.files]})


def _added(added: Addition, folder: Path) -> list[CommandOutput]:
    """Add parts to a plugin; return what to say of it."""
    carry_out(added, folder)
    name, files = added.new.name, [*added.new.files]
    outputs = [CommandOutput(kind="message", text=f"Added to the plugin {name} in {folder}:")]
    outputs += [CommandOutput(kind="text", text=f"  {path}") for path in (*files, *added.changed)]
    for path, text in added.by_hand.items():
        outputs.append(CommandOutput(kind="message", text=f"\nAdd this to {path}, which is yours:"))
        outputs += [CommandOutput(kind="text", text=f"  {line}".rstrip()) for line in text.splitlines()]
    outputs.append(CommandOutput(kind="message", text="\nNext, in the folder of the plugin:"))
    outputs += [CommandOutput(kind="text", text=f"  {line}") for line in ("pytest", "tavern plugins check .")]
    data = {"name": name, "folder": str(folder), "files": files, "changed": [*added.changed], "byHand": added.by_hand}
    return [*outputs, CommandOutput(kind="result", data=data)]


def _ui(ui: str | None) -> Kind | None:
    kinds: dict[str | None, Kind | None] = {None: None, "vue": "vue", "vanilla": "plain", "plain": "plain"}
    if ui not in kinds:
        raise InvalidInput(f"--ui is vue or vanilla, got {ui!r:.80}")
    return kinds[ui]


def _folder_for(name: str, path: str | None) -> tuple[str, Path]:
    """Return the folder of a new plugin as the user says it, and where that is."""
    if path is not None and not path.strip():
        raise InvalidInput("the folder's name is empty; for the current folder write --folder .")
    shown = path or name
    return shown, Path(shown).absolute()


async def check(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Say what the host would say of the plugins at a path, and fail where one has a problem."""
    wrong, form = 0, arguments["format"]
    if form not in FORMATS:
        raise InvalidInput(f"--format is {', '.join(FORMATS)}, got {form!r:.80}")
    found_by_all: list[Finding] = []
    with candidates(Path(arguments["path"])) as found, inspected(found) as inspection:
        imports = not arguments["no_import"]
        for candidate in found:
            if imports and inspection.can_be_imported(candidate):
                yield CommandOutput(kind="progress", text=f"Importing {candidate.folder} to see what it registers …")
        reports = await inspection.reports(imports=imports)
        for candidate, report in zip(found, reports, strict=True):
            wrong += len(report.problems)
            said, roots = [*report.problems, *report.warnings], [candidate.project.root] if candidate.project else []
            found_by_all += said if candidate.is_wheel else [placed(one, candidate.folder, roots) for one in said]
            for output in _outputs(report, is_wheel=candidate.is_wheel) if form == "text" else ():
                yield output
    shown = [sarif(found_by_all)] if form == "sarif" else lines(found_by_all) if form == "lines" else ()
    for line in shown:
        yield CommandOutput(kind="text", text=line)
    yield CommandOutput(kind="result", data={"ok": not wrong, "plugins": [report.to_json() for report in reports]})
    if wrong:
        what = "1 problem" if wrong == 1 else f"{wrong} problems"
        names = ", ".join(report.name for report in reports if report.problems)
        yield CommandOutput(kind="failure", text=f"{what} with {names}", exit_code=1)


def _outputs(report: Report, *, is_wheel: bool) -> list[CommandOutput]:
    title = " ".join(part for part in (report.name, report.version) if part)
    lines = [f"{title} in {report.path}"]
    for kind, names in report.provides.items():
        lines.append(f"  {kind}: {', '.join(names)}")
    if not report.imported:
        why = "a wheel is read, not imported" if is_wheel else "its code was not imported"
        lines.append(f"  looked at its files alone: {why}")
    outputs = [CommandOutput(kind="message", text=line) for line in lines]
    if report.permissions:
        rows = [
            [say(p.level), p.name, say(p.description), "" if p.level == "add" else say("yes")]
            for p in report.permissions
        ]
        columns = ["level", "permission", "what it lets it do", "the operator decides"]
        outputs.append(CommandOutput(kind="table", title=f"{report.name} asks for", columns=columns, rows=rows))
    outputs += outputs_of(report.notes)
    outputs += [CommandOutput(kind="message", text=f"problem: {problem}") for problem in report.problems]
    outputs += [CommandOutput(kind="message", text=f"warning: {warning}") for warning in report.warnings]
    if not report.problems:
        outputs.append(CommandOutput(kind="message", text=f"The host finds nothing wrong with {report.name}."))
    return outputs
