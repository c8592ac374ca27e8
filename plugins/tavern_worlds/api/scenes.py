"""Scenes: several agents with a world in common, and the `sceneManager` service that runs them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from tavern_agents.api.agents import Filled, GoalReference
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.wire import Model, OpenModel


class _PublishedModel(OpenModel):
    """A part of the published format, whose keys are `snake_case`."""

    model_config = ConfigDict(alias_generator=None, strict=True)


class SceneAgent(_PublishedModel):
    """An agent of a scene. `name` is what the others call it, by default its profile's; all know its `role`. Both are
    ours. The initial values are merged into those of the profile, the goals replace its goals."""

    instance_id: str = Field(pattern=r"^[^\s/@*?]{1,100}$")
    profile_id: Filled
    name: Filled | None = None
    role: str = ""
    initial_private_state_override: dict[str, JsonValue] = Field(default_factory=dict)
    initial_goals_override_reference: list[GoalReference] = Field(default_factory=list)


class SceneTask(_PublishedModel):
    """An event that is published by the clock: `every` so many seconds, or once, `after` so many from the start or `at`
    a time; one of the three is given."""

    id: Filled
    event_type: str = Field(pattern=r"^\S{1,200}$")
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    every: float | None = Field(default=None, ge=1)
    after: float | None = Field(default=None, ge=0)
    at: datetime | None = Field(default=None, strict=False)


class SceneWorkflows(_PublishedModel):
    """The workflows that run when a scene starts and when it ends, by id or path."""

    on_scene_start: str | None = None
    on_scene_end: str | None = None


class TurnOrder(_PublishedModel):
    """Who speaks when; ours. The workflow names the next speaker; without one they speak in the order of the scene.
    `turns` is how many there are after something was said, by default one for each agent. With `at_start`, the agents
    begin to talk when the scene starts."""

    workflow_id: str | None = None
    turns: int | None = Field(default=None, ge=0, le=1000)
    at_start: bool = False


class Scene(_PublishedModel):
    """A scene's file, `scenes/ID.json`."""

    id: str = Field(pattern=r"^[^\s/@*?]{1,200}$")
    name: Filled
    description: str = ""
    version: Filled = "1.0.0"
    schema_version: Filled = "1.0"
    agent_instances: list[SceneAgent] = Field(min_length=1, max_length=100)
    initial_world_state: dict[str, JsonValue] = Field(default_factory=dict)
    scene_lifecycle_workflows: SceneWorkflows = Field(default_factory=SceneWorkflows)
    scheduled_tasks: list[SceneTask] = Field(default_factory=list, max_length=100)
    turn_order: TurnOrder = Field(default_factory=TurnOrder)
    custom_metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Scene:
        for ids in ([a.instance_id for a in self.agent_instances], [t.id for t in self.scheduled_tasks]):
            for place, one in enumerate(ids):
                if one in ids[:place]:
                    raise ValueError(f"{one!r} stands twice among the agents or the tasks of the scene")
        for task in self.scheduled_tasks:
            if [task.every, task.after, task.at].count(None) != 2:
                raise ValueError(f"the task {task.id!r} needs one of every, after and at")
            if task.at is not None and task.at.tzinfo is None:
                raise ValueError(f"the task {task.id!r}: the time {task.at.isoformat()} needs a zone, such as Z")
        return self


class SceneSummary(Model):
    """A file of a scene. `problems` keep it from being started; `warnings` name what in it has no effect."""

    id: str
    name: str = ""
    description: str = ""
    agents: list[str] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class SceneEvent(Model):
    """Something that happened in a scene; `type` has no blanks."""

    type: str = Field(pattern=r"^\S{1,200}$")
    payload: dict[str, JsonValue] = Field(default_factory=dict)


class SceneMember(Model):
    """An agent of a running scene. What it thinks and calls is in the conversation `conversation_id`, its own. It has
    `heard` the messages of the scene's conversation up to this one."""

    instance_id: str
    profile_id: str
    name: str
    role: str = ""
    conversation_id: str
    heard: str | None = None


class SceneWake(Model):
    """Something that an agent is to do: answer an event, which `depth` others led to, or speak in turn where there is
    none. `message` is the text it receives for that, set when its turn comes, with what was said up to the message
    `heard`; its run comes after the run `after`."""

    id: str
    instance_id: str
    event: SceneEvent | None = None
    depth: int = 0
    message: str | None = None
    heard: str | None = None
    after: str | None = None


class SceneRun(Model):
    """A scene that was started, as it stands. Its id is that of the conversation in which the agents talk.

    `scene` is as it was when the run began. `wakes` are to be done, the first is at work. `turns` are left before the
    talk ends, `speaker` is the place among the `members` of whose turn was last, `due` has the times of the scheduled
    tasks. `world` is what all agents share; `revision` grows with each change of it. `problem` says what ended the last
    talk early.
    """

    id: str
    scene: Scene
    status: Literal["running", "ended"] = "running"
    members: list[SceneMember]
    wakes: list[SceneWake] = Field(default_factory=list)
    turns: int = 0
    speaker: int = -1
    due: dict[str, datetime] = Field(default_factory=dict)
    world: dict[str, JsonValue] = Field(default_factory=dict)
    revision: int = 0
    problem: str | None = None
    started_at: datetime
    ended_at: datetime | None = None


class WorldState(Model):
    """What all agents of a scene share. `revision` grows with each change."""

    scene: str
    revision: int
    state: dict[str, JsonValue]


_READ = "Read what is said and done in scenes, and their worlds."


class SceneManager(ServiceInterface, name="sceneManager", version=2):
    """Runs scenes. `scene` is the id of a run, or that of a scene, which stands for its latest run. An agent of a scene
    may leave it out and reaches its own scene alone."""

    @reads
    async def list_scenes(self) -> list[SceneSummary]:
        """Return the files of scenes, those with problems among them."""

    @reads
    async def get_scene(self, scene_id: str) -> Scene:
        """Return a scene as its file has it. Raises `NotFound`, `Misconfigured` with its problems."""

    @reads_content("sceneManager:read", _READ)
    async def list_runs(self, *, limit: int = 50) -> list[SceneRun]:
        """Return runs of scenes, the latest first."""

    @reads_content("sceneManager:read", _READ)
    async def get_run(self, scene: str) -> SceneRun:
        """Return a run of a scene as it stands. Raises `NotFound`."""

    @reads_content("sceneManager:read", _READ)
    async def wait(self, scene: str) -> SceneRun:
        """Return a run when nothing is to be done in it now. Raises `NotFound`."""

    @acts("sceneManager:run", "Start and end scenes, speak and publish events in them, and change their worlds.")
    async def start(self, scene_id: str, *, call: CallContext | None = None) -> SceneRun:
        """Start a scene, after its workflow for that. Raises `NotFound`, `Misconfigured`, `PluginFailure`."""

    @acts("sceneManager:run", "Start and end scenes, speak and publish events in them, and change their worlds.")
    async def stop(self, scene: str, *, call: CallContext | None = None) -> SceneRun:
        """End a run: its agent at work is stopped, then its workflow for that runs. Raises `NotFound`."""

    @acts("sceneManager:run", "Start and end scenes, speak and publish events in them, and change their worlds.")
    async def say(
        self,
        scene: str,
        message: str,
        *,
        name: str = "User",
        turns: int | None = None,
        call: CallContext | None = None,
    ) -> SceneRun:
        """Say something to all agents under a name; `turns` of them answer, by default as the scene says. With an empty
        `message` they only get these turns. Raises `NotFound`, `Conflict` for a run that has ended, `InvalidInput`."""

    @acts("sceneManager:run", "Start and end scenes, speak and publish events in them, and change their worlds.")
    async def publish(
        self,
        event_type: str,
        payload: dict[str, JsonValue] | None = None,
        *,
        scene: str | None = None,
        call: CallContext | None = None,
    ) -> list[str]:
        """Publish an event in a scene; return the instances that it wakes: those that subscribe to it, but not the one
        that published it. Raises `NotFound`, `Conflict`, `InvalidInput`, and `LimitReached` where events follow from
        events too deeply, or too many wait."""

    @acts("sceneManager:read", _READ)
    async def read_world(self, *, scene: str | None = None, call: CallContext | None = None) -> WorldState:
        """Return the world of a scene. Raises `NotFound`, `InvalidInput` where none is meant."""

    @acts("sceneManager:run", "Start and end scenes, speak and publish events in them, and change their worlds.")
    async def update_world(
        self,
        state: dict[str, JsonValue],
        *,
        revision: int | None = None,
        scene: str | None = None,
        call: CallContext | None = None,
    ) -> WorldState:
        """Merge keys into the world of a scene (a JSON merge patch, RFC 7396: null removes) in one transaction. Raises
        `Conflict` where `revision` is given and is another by now, or the run has ended, `NotFound`, `InvalidInput`."""

    @acts("sceneManager:write", "Write the project's scenes.", since=2)
    async def create(
        self, name: str, agents: list[str], *, description: str = "", call: CallContext | None = None
    ) -> Scene:
        """Write a scene in which these agents speak in turn, under an id that is made of its name. Raises `NotFound`
        for an agent that is not there, `InvalidInput`."""


SCENE_MANAGER = ServiceKey(SceneManager)
