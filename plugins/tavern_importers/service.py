"""The provider of `importManager`: the kinds that plugins declare, and the marks by which a file is of one of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tavern_host.context import HookResult, PluginContext
from tavern_host.contracts.accounts import is_admitted
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import Forbidden, InvalidInput, NotFound, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.services import gives_new
from tavern_importers.api.importers import (
    MAX_FILE,
    ForeignFile,
    ImporterInfo,
    ImportKind,
    ImportManager,
    ImportOptions,
    ImportReport,
    ImportRequest,
    ImportResult,
)
from tavern_importers.folders import unpacked
from tavern_importers.reading import ReadFile, read_foreign, read_map

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

_OPERATORS = "is imported by who operates the host: it sets up what runs with rights of its own"


@dataclass(frozen=True)
class _Importer:
    info: ImporterInfo
    result: HookResult[list[ImporterInfo]]
    marks: Draft202012Validator

    def takes(self, read: ReadFile) -> bool:
        """Return whether a file has the marks of this kind."""
        return read.form in self.info.forms and self.marks.is_valid(read.value)

    def shown(self) -> ImportKind:
        """Return the kind as it is listed."""
        return ImportKind(plugin=self.result.plugin, **self.info.model_dump(exclude={"handler", "marks"}))


class Imports(ImportManager):
    """The importers of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._revision = -1
        self._known: dict[str, _Importer] = {}

    async def kinds(self) -> list[ImportKind]:
        """Return the kinds of files; see the interface."""
        return [one.shown() for one in (await self._importers()).values()]

    async def recognise(self, file: ForeignFile) -> ImportKind | None:
        """Return the kind of a file; see the interface."""
        with suppress(TavernError):
            found, _ = await self._found(await self._opened(file))
            return found.shown() if isinstance(found, _Importer) else None
        return None

    @gives_new
    async def import_file(
        self,
        file: ForeignFile,
        *,
        kind: str | None = None,
        options: ImportOptions | None = None,
        call: CallContext | None = None,
    ) -> ImportResult:
        """Import a file; see the interface."""
        call, known = call or system_call(self._context.project.id), await self._importers()
        file = await self._opened(file)
        found, read = await self._found(file)
        if kind is None:
            if not isinstance(found, _Importer):
                raise InvalidInput(f"{file.name} is no file that can be imported here{found}", kinds=[*known])
        elif kind not in known:
            raise NotFound(
                f"nothing is imported as {kind!r:.80}{did_you_mean(kind, known)}; there are {', '.join(known)}"
            )
        else:
            found = known[kind]
        if found.info.access == "operate" and not await self._may_operate(call):
            raise Forbidden(f"a file of the kind {found.info.name} ({found.info.title}) {_OPERATORS}")
        options = options or ImportOptions()
        counterparts = await asyncio.to_thread(read_map, self._context.project.root)
        about = {"kind": found.info.name, "file": file, "document": read.value, "counterparts": counterparts}
        request = ImportRequest.construct(
            **about, options=options, call=call
        )  # it is plain: checking all of it takes long
        report: ImportReport = await found.result.call(found.info.handler, request)
        about = {"kind": found.info.name, "title": found.info.title, "dry_run": options.dry_run}
        return ImportResult(**dict(report), **about)

    async def _opened(self, file: ForeignFile) -> ForeignFile:
        if len(file.content) > MAX_FILE:
            raise InvalidInput(f"{file.name} has more than {MAX_FILE >> 20} MiB, which is too much to be imported")
        entries = [entry for one in (await self._importers()).values() for entry in one.info.entries]
        return await asyncio.to_thread(unpacked, file, entries)

    async def _found(self, file: ForeignFile) -> tuple[_Importer | str, ReadFile]:
        """Return who imports a file, else in words what it is instead; and what it holds."""
        known = [*(await self._importers()).values()]
        return await asyncio.to_thread(_of_marks, file, known)

    async def _may_operate(self, call: CallContext) -> bool:
        if call.admission is None:
            return call.principal.kind in ("user", "system")
        admission = call.admission.model_copy(update={"access": "operate"})
        return await is_admitted(self._context.services, call.model_copy(update={"admission": admission}))

    async def _importers(self) -> dict[str, _Importer]:
        hooks = self._context.hooks
        if self._revision != hooks.revision:
            self._revision, owners, known = hooks.revision, dict[str, str](), dict[str, _Importer]()
            for result in await hooks.collect("tavern_register_importers"):
                for info in result.value or []:
                    if hooks.claim(owners, "kind of files", info.name, result.plugin):
                        self._take(info, result, known)
            self._known = known
        return self._known

    def _take(self, info: ImporterInfo, result: HookResult[list[ImporterInfo]], known: dict[str, _Importer]) -> None:
        from jsonschema_rs import Draft202012Validator, RegexOptions

        try:
            # no reference leads out of the marks, and what they ask takes time in proportion to the file
            marks = Draft202012Validator(info.marks, offline=True, pattern_options=RegexOptions())
        except ValueError as error:
            said = str(error).partition("\n")[0]
            self._context.hooks.report(result.plugin, f"the marks of the kind of files {info.name} are none: {said}")
        else:
            known[info.name] = _Importer(info, result, marks)


def _of_marks(file: ForeignFile, known: list[_Importer]) -> tuple[_Importer | str, ReadFile]:
    read = read_foreign(file)
    found = next((one for one in known if one.takes(read)), None)
    return found or _instead(read), read


def _instead(read: ReadFile) -> str:
    """Return in words what a file of no kind is."""
    if read.form in ("png", "webp", "jpeg"):
        return f": a picture without anything in it ({', '.join(read.value)})" if read.value else ": a picture alone"
    if isinstance(read.value, dict):
        keys = ", ".join(repr(key)[:40] for key in list(read.value)[:8]) or "no keys"
        return f": an object with {keys}; say with --as what it is, and `tavern import --kinds` lists the kinds"
    what: Any = {list: "a list", str: "text", type(None): "no content"}.get(type(read.value), "a single value")
    return f": it holds {what}; `tavern import --kinds` lists the kinds"
