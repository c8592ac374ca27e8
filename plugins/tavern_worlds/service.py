"""The `sceneManager` service: runs of scenes. One host at a time lets the agents of a run act, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextvars import Context
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.agents import AGENT_RUNTIME, AgentProfile, AgentRequest, AgentRun, AgentRunFilter
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.contracts.documents import merged, read_model
from tavern_host.contracts.errors import (
    Conflict,
    InvalidInput,
    Misconfigured,
    NotFound,
    PluginFailure,
    TavernError,
    describe,
)
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.names import did_you_mean
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.macros import MacroRequest
from tavern_workflows.api.workflows import WORKFLOW_MANAGER
from tavern_worlds import State
from tavern_worlds import turns as changes
from tavern_worlds.api.scenes import (
    SCENE_MANAGER,
    Scene,
    SceneAgent,
    SceneEvent,
    SceneManager,
    SceneMember,
    SceneRun,
    SceneSummary,
    SceneWake,
    WorldState,
)
from tavern_worlds.files import read_scenes, write_scene
from tavern_worlds.openings import introduce
from tavern_worlds.store import SceneStore

EVENT = "SCENE_UPDATE"

MAX_TURNS = 1000
"""How many turns the agents may have after something was said."""

MAX_HEARD = 200
"""How many messages an agent hears at once, the latest."""

_TAIL = 20
"""How many messages a workflow gets that decides who speaks."""

_LOOK_EVERY = 0.3
"""Seconds between two looks at a scene that another host works on."""


class Scenes(SceneManager):
    """The scenes of the project."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self.store = SceneStore(context.operator_dir / "scenes", context.log)
        self._folder = context.project.folder("scenes")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        context.own(State).scenes = self

    async def close(self) -> None:
        """Leave what is at work to the next host."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    # --- what there is ----------------------------------------------------------------------------

    async def list_scenes(self) -> list[SceneSummary]:
        """Return the files of scenes."""
        return (await asyncio.to_thread(read_scenes, self._folder))[1]

    async def get_scene(self, scene_id: str) -> Scene:
        """Return a scene as its file has it; see the interface."""
        scenes, summaries = await asyncio.to_thread(read_scenes, self._folder)
        if scene_id in scenes:
            return scenes[scene_id]
        problems = [problem for one in summaries if one.id == scene_id for problem in one.problems]
        if problems:
            raise Misconfigured(f"the scene {scene_id!r} cannot be used: {'; '.join(problems)}", problems=problems)
        raise NotFound(f"there is no scene {scene_id!r}{did_you_mean(scene_id, scenes)}", scene=scene_id)

    async def create(
        self, name: str, agents: list[str], *, description: str = "", call: CallContext | None = None
    ) -> Scene:
        """Write a scene of agents; see the interface."""
        found = [await self._context.services.get(AGENT_RUNTIME).get(agent) for agent in agents]
        return await asyncio.to_thread(write_scene, self._folder, name, [one.id for one in found], description)

    async def list_runs(self, *, limit: int = 50) -> list[SceneRun]:
        """Return runs, the latest first."""
        return await self.store.runs(max(1, min(limit, 1000)))

    async def get_run(self, scene: str) -> SceneRun:
        """Return a run as it stands. Raises `NotFound`."""
        return await self.store.run(scene)

    async def wait(self, scene: str) -> SceneRun:
        """Return a run when nothing is to be done in it now."""
        run = await self.store.run(scene)
        while run.turns or run.wakes:
            self._poke(run.id)
            await asyncio.wait([self._tasks[run.id]])
            run = await self.store.run(run.id)
            if run.turns or run.wakes:
                await asyncio.sleep(_LOOK_EVERY)
        return run

    # --- starting and ending ----------------------------------------------------------------------

    async def start(self, scene_id: str, *, call: CallContext | None = None) -> SceneRun:
        """Start a scene; see the interface."""
        scene, now, run_id = await self.get_scene(scene_id), clock.now(), new_id("scene")
        profiles = [await self._profile(agent) for agent in scene.agent_instances]
        pairs = list(zip(scene.agent_instances, profiles, strict=True))
        names = [agent.name or profile.name for agent, profile in pairs]
        members = [
            SceneMember(
                instance_id=agent.instance_id,
                profile_id=agent.profile_id,
                name=name if names.count(name) == 1 else agent.instance_id,
                role=agent.role,
                conversation_id=f"{run_id}.{agent.instance_id}",
            )
            for agent, name in zip(scene.agent_instances, names, strict=True)
        ]
        run = SceneRun(
            id=run_id,
            scene=scene,
            members=members,
            turns=changes.turns_of(scene) if scene.turn_order.at_start else 0,
            due={t.id: t.at or now + timedelta(seconds=t.every or t.after or 0) for t in scene.scheduled_tasks},
            world=scene.initial_world_state,
            started_at=now,
        )
        for task in scene.scheduled_tasks:
            changes.check_size(task.payload, f"the event of the task {task.id!r}")
        patch = await self._patch(scene.scene_lifecycle_workflows.on_scene_start, run, call)
        world = changes.check_size(merged(run.world, patch), "the world")
        run = run.model_copy(update={"world": world})
        try:
            for member, (agent, profile) in zip(members, pairs, strict=True):
                await introduce(self._context, run, member, agent, profile, call)
            await self.store.add(run, call)
        except TavernError:
            for conversation in (run.id, *(member.conversation_id for member in members)):
                await self._context.services.get(CHAT_HISTORY).delete(conversation)
            raise
        self._changed(run, "started")
        return run

    async def _profile(self, agent: SceneAgent) -> AgentProfile:
        try:
            return await self._context.services.get(AGENT_RUNTIME).get(agent.profile_id)
        except NotFound as error:
            raise Misconfigured(f"$.agent_instances: {agent.instance_id!r}: {error.message}") from None

    async def stop(self, scene: str, *, call: CallContext | None = None) -> SceneRun:
        """End a run; see the interface."""
        quiet: dict[str, Any] = {"turns": 0, "wakes": []}
        run = await self.store.change(scene, lambda run: quiet)
        if run.status == "ended":
            return run
        runtime, ended = self._context.services.get(AGENT_RUNTIME), {**quiet, "status": "ended"}
        for member in run.members:
            latest = await self._latest_run(member)
            if latest is not None and not latest.status.is_final:
                with contextlib.suppress(Conflict):  # another host works on it: nobody hears what it says
                    await runtime.interrupt(latest.id)
        try:
            patch = await self._patch(run.scene.scene_lifecycle_workflows.on_scene_end, run, call)
            run = await self.store.change(run.id, lambda run: changes.change_world(run, patch) if patch else {})
        except TavernError as error:
            ended["problem"] = error.message
        run = await self.store.change(run.id, lambda run: {**ended, "ended_at": clock.now()})
        self._changed(run, "ended")
        return run

    # --- what people and agents do ----------------------------------------------------------------

    async def say(
        self, scene: str, message: str, *, name: str = "User", turns: int | None = None, call: CallContext | None = None
    ) -> SceneRun:
        """Say something to all agents; see the interface."""
        run = await self.store.run(scene)
        changes.require_running(run)
        left = changes.turns_of(run.scene) if turns is None else turns
        if not (message.strip() or turns) or not 0 <= left <= MAX_TURNS:
            raise InvalidInput(f"give a message, or turns, at most {MAX_TURNS}")
        if name in ["Event", *(member.name for member in run.members)]:
            raise InvalidInput(f"the name {name!r} is taken in this scene")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise InvalidInput("a name must have 1 to 100 characters, in one line")
        if message.strip():
            said = ChatMessage(role="user", name=name, content=message)
            await self._context.services.get(CHAT_HISTORY).add(run.id, [said], call=call)
        run = await self.store.change(run.id, lambda run: {"turns": left, "problem": None})
        self._changed(run, "said", name=name)
        return run

    async def publish(
        self,
        event_type: str,
        payload: dict[str, JsonValue] | None = None,
        *,
        scene: str | None = None,
        call: CallContext | None = None,
    ) -> list[str]:
        """Publish an event in a scene; see the interface."""
        event = read_model(SceneEvent, {"type": event_type, "payload": payload or {}}, "the event")
        run, publisher = await self._meant(scene, call)
        subscribed, before = await self._subscriptions(run), {wake.id for wake in run.wakes}
        run = await self.store.change(run.id, lambda run: changes.add_event(run, event, subscribed, publisher))
        woken = [wake.instance_id for wake in run.wakes if wake.id not in before and wake.event == event]
        self._changed(run, "event", type=event.type, payload=event.payload, by=publisher)
        return woken

    async def _subscriptions(self, run: SceneRun) -> changes.Subscriptions:
        found: changes.Subscriptions = {}
        for member in run.members:
            with contextlib.suppress(TavernError):  # it is broken, and told so when it is to speak
                profile = await self._context.services.get(AGENT_RUNTIME).get(member.profile_id)
                found[member.instance_id] = profile.subscribed_event_types
        return found

    async def read_world(self, *, scene: str | None = None, call: CallContext | None = None) -> WorldState:
        """Return the world of a scene; see the interface."""
        return changes.world_of((await self._meant(scene, call))[0])

    async def update_world(
        self,
        state: dict[str, JsonValue],
        *,
        revision: int | None = None,
        scene: str | None = None,
        call: CallContext | None = None,
    ) -> WorldState:
        """Merge keys into the world of a scene; see the interface."""
        run, _ = await self._meant(scene, call)
        run = await self.store.change(run.id, lambda run: changes.change_world(run, state, revision))
        self._changed(run, "world", revision=run.revision)
        return changes.world_of(run)

    async def _meant(self, scene: str | None, call: CallContext | None) -> tuple[SceneRun, str | None]:
        """Return the run that a call is about, and the agent of it that makes the call. Raises `InvalidInput`."""
        if call is None or call.principal.kind != "agent":
            if scene is None:
                raise InvalidInput("say which scene is meant; only an agent of one may leave it out")
            return await self.store.run(scene), None
        memory = await self._context.services.get(AGENT_RUNTIME).recall(call=call)
        with contextlib.suppress(NotFound):
            run, own = await self.store.run(memory.conversation_id.partition(".")[0]), memory.conversation_id
            member = next((one for one in run.members if one.conversation_id == own), None)
            if member is not None and member.profile_id == memory.profile_id:
                if scene not in (None, run.id, run.scene.id):
                    raise InvalidInput("an agent reaches the scene that it is in, and no other")
                return run, member.instance_id
        raise InvalidInput("this agent works in no scene")

    # --- what happens by itself -------------------------------------------------------------------

    async def look(self) -> None:
        """Resume what waits in running scenes, and what is due."""
        for scene in await self.store.due(clock.now()):
            self._poke(scene)

    def _changed(self, run: SceneRun, what: str, **about: JsonValue) -> None:
        self._context.events.publish(EVENT, {"sceneRunId": run.id, "sceneId": run.scene.id, "change": what, **about})
        if run.turns or run.wakes:
            self._poke(run.id)

    def _poke(self, scene: str) -> None:
        """See to it that what is to be done in a scene is done, unless another host does it."""
        self._again.add(scene)
        if scene not in self._tasks:  # in a context of its own: it is no part of what its caller does
            spawn = self._context.tasks.spawn
            self._tasks[scene] = Context().run(lambda: spawn(self._work(scene), name=f"scene {scene}"))

    async def _work(self, scene: str) -> None:
        try:
            while scene in self._again:
                self._again.discard(scene)
                if await self.store.claim(scene):
                    try:
                        while await self._step(scene):
                            pass
                    finally:
                        with contextlib.suppress(TavernError):  # the store is closed
                            await asyncio.shield(self.store.release(scene))
        except TavernError as error:  # how it stands cannot be written: it is looked at again
            self._context.log.error("the scene %s waits: %s", scene, error.message)
        finally:
            del self._tasks[scene]

    async def _step(self, scene: str) -> bool:
        """Do the next thing in a scene; False where nothing is to be done now."""
        run = await self.store.run(scene)
        if run.status == "ended":
            return False
        try:
            now = clock.now()
            if any(at <= now for at in run.due.values()):
                subscribed, due = await self._subscriptions(run), [id for id, at in run.due.items() if at <= now]
                run = await self.store.change(scene, lambda run: changes.publish_due(run, subscribed, now))
                self._changed(run, "event", tasks=[*due])
            elif run.wakes:
                await self._wake(run, run.wakes[0])
            elif run.turns:
                speaker = await self._next_speaker(run)
                await self.store.change(scene, lambda run: changes.give_turn(run, speaker))
            else:
                return False
        except TavernError as error:
            await self._fail(run, error.message)
        except Exception as error:  # a mistake of ours or of a plugin's: it is not tried again each second
            self._context.log.error("the scene %s failed: %s", scene, describe(error), exc_info=error)
            await self._fail(run, describe(error))
        return True

    async def _fail(self, run: SceneRun, problem: str) -> None:
        """End the talk, and what its first wake-up asked for, with a problem."""
        if run.wakes:
            run = await self.store.change(run.id, lambda now: changes.finish(now, run.wakes[0], problem))
        else:
            run = await self.store.change(run.id, lambda now: {"turns": 0, "problem": problem})
        self._changed(run, "problem", text=problem)

    async def _next_speaker(self, run: SceneRun) -> str | None:
        order = run.scene.turn_order.workflow_id
        if order is None:
            return run.members[(run.speaker + 1) % len(run.members)].instance_id
        tail = await self._context.services.get(CHAT_HISTORY).load(run.id, last=_TAIL)
        history: JsonValue = [one.message.to_json() for one in tail]
        outputs = await self._outputs(order, run, await self.store.call(run.id), history=history)
        only = next(iter(outputs.values())) if len(outputs) == 1 else None
        speaker = outputs.get("next_speaker", only)
        return None if speaker in (None, "") else str(speaker)

    async def _patch(self, workflow: str | None, run: SceneRun, call: CallContext | None) -> dict[str, JsonValue]:
        """Return how a workflow of the scene's life changes its world."""
        patch = None if workflow is None else (await self._outputs(workflow, run, call)).get("world_state")
        return patch if isinstance(patch, dict) else {}

    async def _outputs(
        self, reference: str, run: SceneRun, call: CallContext | None = None, **more: JsonValue
    ) -> dict[str, JsonValue]:
        """Return the outputs of a workflow of the scene, whose inputs are those of its state that it has."""
        stored = await self._context.services.get(WORKFLOW_MANAGER).get(reference)
        participants: list[JsonValue] = [{"id": m.instance_id, "name": m.name, "role": m.role} for m in run.members]
        last = "" if run.speaker < 0 else run.members[run.speaker].instance_id
        known = {"scene": run.id, "world_state": run.world, "participants": participants, "last_speaker": last, **more}
        inputs = {name: value for name, value in known.items() if name in stored.workflow.interface_inputs}
        asked = RunRequest(workflow_id=stored.id, inputs=inputs, use_cache=False, recover=False)
        done = await self._context.services.get(EXECUTION_ENGINE).run(asked, call=call)
        if done.status is not RunStatus.COMPLETE:
            reason = done.status.value if done.error is None else done.error.message
            raise PluginFailure(f"the workflow {reference!r} of the scene failed (run {done.id}): {reason}")
        return done.outputs

    async def _wake(self, run: SceneRun, wake: SceneWake) -> None:
        """Let an agent do what it was woken for, and keep what it says. What was begun before is not begun again."""
        runtime, histories = self._context.services.get(AGENT_RUNTIME), self._context.services.get(CHAT_HISTORY)
        member = next(one for one in run.members if one.instance_id == wake.instance_id)
        latest = await self._latest_run(member)
        if wake.message is None:
            said = await histories.load(run.id, last=MAX_HEARD)
            known: dict[str, Any] = {"message": changes.message_for(member, wake, said)}
            known |= {"heard": said[-1].id if said else None, "after": None if latest is None else latest.id}
            wake = wake.model_copy(update=known)
            run = await self.store.change(run.id, lambda run: changes.replace_wake(run, wake))
            if wake not in run.wakes:  # it was taken back
                return
        if latest is None or latest.id == wake.after:
            asked = {"message": wake.message, "conversation_id": member.conversation_id}
            request = AgentRequest(profile_id=member.profile_id, **asked)
            latest = await runtime.start(request, call=await self.store.call(run.id))
        elif not latest.status.is_final:
            with contextlib.suppress(Conflict):  # it is at work
                await runtime.resume(latest.id)
        reply = await runtime.wait(latest.id)
        latest = await runtime.get_run(latest.id)
        if not latest.status.is_final:
            raise asyncio.CancelledError  # the host ends: the next one resumes the run
        answered = reply.outcome in ("reply", "limit") and reply.text
        problem = None if answered else f"{member.name}: {reply.error or reply.outcome}"
        run = await self.store.run(run.id)
        if wake.id not in [one.id for one in run.wakes]:  # it was taken back
            return
        if problem is None and reply.text.strip() != changes.SILENT:
            said = await histories.load(run.id, last=MAX_HEARD)
            if latest.id not in [one.run_id for one in said]:
                message = ChatMessage(role="assistant", name=member.name, content=reply.text)
                await histories.add(run.id, [message], run_id=latest.id)
        run = await self.store.change(run.id, lambda run: changes.finish(run, wake, problem))
        self._changed(run, "said" if problem is None else "problem", name=member.name, text=problem or reply.text)

    async def _latest_run(self, member: SceneMember) -> AgentRun | None:
        asked = AgentRunFilter(conversation_id=member.conversation_id, limit=1)
        return next(iter(await self._context.services.get(AGENT_RUNTIME).runs(asked)), None)


async def world_text(request: MacroRequest, context: PluginContext) -> str:
    """Return the world of the scene of the agent that reads the prompt; nothing where it is in none."""
    try:
        world = await context.services.get(SCENE_MANAGER).read_world(call=request.call)
    except InvalidInput:
        return ""
    return json.dumps(world.state, ensure_ascii=False)
