"""What a child asks of its host: services, events, Blobs, tasks. All that is decided is decided here and behind it: the
plugin's own context is asked, as if the plugin were in this process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from tavern_host.context import HookResult, PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Forbidden, InvalidInput, NotFound, PermissionDenied, PluginEnded, TavernError
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.nodes import NodeProgress, Report
from tavern_host.contracts.services import interface_methods
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.installed import first_party
from tavern_host.runtime.source import PluginSource
from tavern_isolation.frames import Message
from tavern_isolation.hello import ANSWER, BLOB_CALLS, EVENTS, INVOKE, EntryPoint, Hello, HostState, SettingsState
from tavern_isolation.known import Catalogue, references
from tavern_isolation.link import Link
from tavern_isolation.log_text import for_log
from tavern_isolation.typed import READ, Head, Lent, Typed, answer_type, sent, typed

_MOST_TEXT = 100_000
"""Characters of one line of the log."""
_MOST_SAID = 1_000_000
"""Bytes of one notice, such as an event: the host keeps some of them."""
_MOST_TASKS = 500
"""Tasks of a plugin at a time; each is one of the calls of the host that may be in flight."""


class Requests:
    """Answers one child. `originals` are the services that its providers override, each with the view of what is
    overridden, by the number of the object."""

    def __init__(self, context: PluginContext, catalogue: Catalogue, lent: Lent) -> None:
        self._context = context
        self._catalogue = catalogue
        self._lent = lent
        self.originals: dict[int, tuple[str, Any]] = {}
        self.link: Link
        self._calls: Mapping[str, Callable[[Head, Message], Any]] = {
            "service": self._service,
            "invoke": self._invoke,
            "call hook": self._call_hook,
            "answer": self._answer,
            "subscribe": self._subscribe,
            "blobs": self._blobs,
            "audit written": self._audit_written,
            READ: self._read,
        }
        self._notices: Mapping[str, Callable[[Message], None]] = {
            "log": self._log,
            "publish": self._publish,
            "report": self._report,
            "claim": self._claim,
            "task": self._task,
            "progress": self._progress,
            "audit": self._audit,
        }
        self._tasks = 0
        self.reports: dict[int, Report] = {}
        self._answers: dict[str, tuple[HookResult[Any], bytes]] = {}
        self._told: object = None
        self._revision = -1
        self._following: asyncio.Task[None] | None = None

    async def serve(self, name: str, parts: Message) -> Any:
        """Carry out a call of the child."""
        answered = self._calls.get(name)
        if answered is None:
            raise InvalidInput(f"a child cannot ask for {name!r:.80}")
        head = json.loads(parts[0]) if parts else None
        if not isinstance(head, dict):
            raise InvalidInput(f"{name}: no head")
        return await answered(head, parts[1:])

    def notice(self, name: str, parts: Message) -> None:
        """Take a notice of the child. Raises `ValueError` for what is none."""
        taken = self._notices.get(name)
        if taken is None:
            raise ValueError(f"a child cannot say {name!r:.80}")
        if sum(map(len, parts)) > _MOST_SAID:
            self._context.log.error("%s of its process is left out: it has over %d bytes", name, _MOST_SAID)
            return
        try:
            taken(parts)
        except TavernError as error:  # it was understood, and may not be
            self._context.log.error("%s of its process: %s", name, error.message)
        except Exception as error:
            raise ValueError(f"the notice {name} is damaged: {error}") from None

    # --- services --------------------------------------------------------------------------------------------

    async def _service(self, head: Head, parts: Message) -> Any:
        service, method = str(head["service"]), str(head["method"])
        interface = self._catalogue.interfaces.get(service)
        if interface is None or method not in interface_methods(interface):
            raise NotFound(f"there is no {service}.{method}")
        original = head.get("original")
        of, view = (service, None) if original is None else self.originals.get(int(original), ("", None))
        if of != service:
            raise NotFound(f"{self._context.plugin} overrides no {service} by the object {original!r:.80}")
        view = self._context.services.get(service) if original is None else view
        crossing = typed(getattr(interface, method), f"{service}.{method}", self._context.plugin)
        value = getattr(view, method)(**crossing.arguments(head, parts, self.link))
        return crossing.answer(value if isinstance(value, AsyncIterator) else await value)

    async def _invoke(self, head: Head, parts: Message) -> Any:
        crossing = Typed("invoke", INVOKE, plugin=self._context.plugin)
        given = crossing.arguments(head, parts, self.link)
        services = self._context.services
        value = await services.invoke(str(head["service"]), str(head["method"]), given["arguments"], call=given["call"])
        return crossing.answer(value)

    async def _read(self, head: Head, parts: Message) -> AsyncIterator[Message]:
        return self._lent.read(int(head["stream"]))

    # --- hooks -----------------------------------------------------------------------------------------------

    async def _call_hook(self, head: Head, parts: Message) -> Message:
        hook, hooks, catalogue = str(head["hook"]), self._context.hooks, self._catalogue
        if hook not in catalogue.hooks:
            raise NotFound(f"there is no hook {hook!r:.80}")
        crossing = typed(catalogue.spec(hook), hook, self._context.plugin)
        arguments = crossing.arguments(head, parts, self.link)
        if head["how"] == "filter":
            first = catalogue.hooks[hook].arguments[0]
            value = await hooks.filter(hook, arguments.pop(first), **arguments)
            return (sent(value, answer_type(crossing.hints, "filter", first), hook, self._context.plugin),)
        if head["how"] == "first":
            answer = await hooks.first(hook, **arguments)
            answers = [answer] if answer is not None else []
        else:
            answers = await hooks.collect(hook, **arguments)
        kind = answer_type(crossing.hints, str(head["how"]))
        said = [(one.plugin, one.code, one.settings) for one in answers]
        values = [sent(one.value, kind, f"{hook} of {one.plugin}", one.plugin) for one in answers]
        self._answers |= {one.plugin: (one, value) for one, value in zip(answers, values, strict=True)}
        return (json.dumps(said).encode(), *values)

    async def _answer(self, head: Head, parts: Message) -> Any:
        plugin, handler = str(head["plugin"]), str(head["handler"])
        answer, value = self._answers.get(plugin, (None, b""))
        if answer is None or answer.code != head["code"]:
            raise NotFound(f"{plugin!r:.80} gave no answer, or was reloaded since; call the hook again")
        if json.dumps(handler).encode() not in value:  # else a child could call whatever that plugin imports
            raise Forbidden(f"the last answer of {plugin} does not name {handler!r:.80}", plugin=plugin)
        crossing = Typed(f"{handler} of {plugin}", ANSWER, plugin=plugin)
        given = crossing.arguments(head, parts, self.link)
        return crossing.answer(await answer.call(handler, *given["arguments"]))

    def _claim(self, parts: Message) -> None:
        said = {key: str(value) for key, value in json.loads(parts[0]).items()}
        self._context.hooks.claim({said["name"]: said["owner"]}, said["kind"], said["name"], said["plugin"])

    # --- events, the log, tasks ------------------------------------------------------------------------------

    async def _subscribe(self, head: Head, parts: Message) -> AsyncIterator[Message]:
        since = head["since"]
        types = [str(one) for one in head["types"]]
        subscription = self._context.events.subscribe(
            *types, since=None if since is None else int(since), limit=max(1, min(int(head["limit"]), 16_384))
        )

        async def items() -> AsyncIterator[Event | Gap]:
            try:
                async for event in subscription:
                    yield event
            finally:
                await subscription.close()

        answer = Typed("events", EVENTS, plugin=self._context.plugin).answer(items())
        assert not isinstance(answer, tuple)
        return answer

    def _publish(self, parts: Message) -> None:
        event = decode(parts[0], Event)
        with suppress(PermissionDenied):  # the child has said so already, unless it is none of ours
            self._context.events.publish(event.type, event.payload)

    def _log(self, parts: Message) -> None:
        said = json.loads(parts[0])
        level = min(max(int(said["level"]), logging.DEBUG), logging.CRITICAL)
        self._context.log.log(level, "%s", for_log(str(said["text"])[:_MOST_TEXT]))

    def _audit(self, parts: Message) -> None:
        said, call = json.loads(parts[0]), decode(parts[1], CallContext | None)
        self._context.audit.record(**said, call=call)

    async def _audit_written(self, head: Head, parts: Message) -> Message:
        await self._context.audit.written()
        return ()

    def _progress(self, parts: Message) -> None:
        report = self.reports.get(int(json.loads(parts[0])["report"]))
        if report is not None:
            said: NodeProgress = decode(parts[1], NodeProgress)
            report(NodeProgress.of(said.value, said.maximum, said.message))

    def _report(self, parts: Message) -> None:
        said = json.loads(parts[0])
        self._context.hooks.report(str(said["plugin"]), str(said["message"]), **said["details"])

    def _task(self, parts: Message) -> None:
        said = json.loads(parts[0])
        number = int(said["task"])

        async def end() -> None:
            with suppress(PluginEnded):  # which is said once
                await self.link.call("task", json.dumps({"task": number}).encode())

        def ended(task: object) -> None:
            self._tasks -= 1

        try:
            if self._tasks >= _MOST_TASKS:
                raise PermissionDenied(f"{self._context.plugin} has {_MOST_TASKS} tasks already")
            task = self._context.tasks.spawn(end(), name=str(said["name"])[:200], finish=bool(said["finish"]))
            self._tasks += 1
            task.add_done_callback(ended)
        except PermissionDenied as error:
            self._context.log.error("%s", error.message)
            self.link.notify("end task", json.dumps({"task": number}).encode())

    # --- what a child knows ----------------------------------------------------------------------------------

    def hello(self, source: PluginSource, root: str | None, proxies: dict[str, str]) -> Hello:
        """What a child needs to begin; `root` is the plugin's folder as it sees it."""
        context = self._context
        services, hooks, _ = references(self._catalogue, source.name)
        return Hello(
            plugin=source.name,
            module=source.module,
            root=root,
            reviewed=None if source.reviewed is None else {path: one.hex() for path, one in source.reviewed.items()},
            entries={
                hook: EntryPoint(module=one.module, collector=one.collector, options=dict(one.options))
                for hook, one in source.entries.items()
            },
            first_party=[name for name, _ in first_party()],
            publishes=list(source.publishes),
            known_services=services,
            known_hooks=hooks,
            events=context.events.permissions,  # type: ignore[attr-defined]
            settings=self.settings(),
            state=self.state(),
            project_id=context.project.id,
            project_name=context.project.name,
            project_root=str(context.project.root),
            data_dir=str(context.data_dir),
            operator_dir=str(context.operator_dir),
            serving=context.serving,
            proxies=proxies,
        )

    # --- settings --------------------------------------------------------------------------------------------

    def settings(self) -> SettingsState:
        """Return the plugin's settings as they are now."""
        settings = self._context.settings
        keys = settings.keys  # type: ignore[attr-defined]
        return SettingsState(
            revision=settings.revision,
            digest=settings.digest,
            layers={key: layers for key in keys if (layers := settings.layers(key))},
            left_out={key: left for key in keys if (left := settings.left_out(key))},
        )

    def state(self) -> HostState:
        """Return the host's state as the child is to know it now."""
        context, catalogue = self._context, self._catalogue
        _, _, published = references(catalogue, context.plugin)
        return HostState(
            revision=context.hooks.revision,
            services=[name for name in catalogue.interfaces if context.services.has(name)],
            implemented=[name for name in catalogue.hooks if context.hooks.implemented(name)],
            published=published,
            is_stopping=context.is_stopping(),
            is_draining=context.is_draining(),
        )

    def catch_up(self) -> None:
        """Tell the child what changed since it was last told, so that it knows before it is asked for more."""
        context = self._context
        told = context.hooks.revision, context.is_stopping(), context.is_draining()
        if told != self._told:
            self._told = told
            self.link.notify("state", encode(self.state(), HostState))
        if context.settings.revision != self._revision:
            self._tell_settings([])

    def _tell_settings(self, keys: list[str]) -> None:
        settings = self.settings()
        self._revision = settings.revision
        self.link.notify("settings", json.dumps({"keys": keys}).encode(), encode(settings, SettingsState))

    def follow_settings(self) -> None:
        """Tell the child which keys change, from now on."""

        async def follow() -> None:
            async for keys in self._context.settings.changes():
                self._tell_settings(keys)

        self._following = asyncio.get_running_loop().create_task(follow())

    def close(self) -> None:
        """Say nothing more."""
        if self._following is not None:
            self._following.cancel()

    # --- Blobs -----------------------------------------------------------------------------------------------

    async def _blobs(self, head: Head, parts: Message) -> Any:
        method = str(head["method"])
        hints = BLOB_CALLS.get(method)
        if hints is None:
            raise NotFound(f"there is no blobs.{method}")
        crossing = Typed(f"blobs.{method}", hints, plugin=self._context.plugin)
        value = getattr(self._context.blobs, method)(**crossing.arguments(head, parts, self.link))
        return crossing.answer(value if isinstance(value, AsyncIterator) else await value)
