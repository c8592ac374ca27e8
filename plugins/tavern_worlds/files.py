"""Reads and writes the scenes of a project, `scenes/*.json`; says what is wrong with them and what has no effect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tavern_host.contracts.documents import read_document_file, read_model
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import OpenModel
from tavern_host.storage.files import write_atomic
from tavern_worlds.api.scenes import Scene, SceneSummary


def read_scenes(folder: Path) -> tuple[dict[str, Scene], list[SceneSummary]]:
    """Return the scenes that can be started, by id, and what there is to say of each file. Never raises for what a file
    says."""
    scenes: dict[str, Scene] = {}
    summaries: list[SceneSummary] = []
    for path in sorted(folder.glob("*.json")):
        file = f"{folder.name}/{path.name}"
        try:
            if not path.resolve().is_relative_to(folder.parent.resolve()):
                raise TavernError(f"{file} leads out of the project; only files of the project are read")
            scene = read_model(Scene, read_document_file(path), file)
            if scene.id in scenes:
                raise TavernError(f"{file}: $.id: {scene.id!r} is the id of another scene already")
        except (TavernError, OSError, RuntimeError) as error:
            problem = error.message if isinstance(error, TavernError) else f"{file} cannot be read: {error}"
            summaries.append(SceneSummary(id=path.stem, problems=[problem]))
            continue
        scenes[scene.id] = scene
        agents = [agent.instance_id for agent in scene.agent_instances]
        warnings = [f"{file}: {warning}" for warning in _warnings(scene)]
        about = {"name": scene.name, "description": scene.description}
        summaries.append(SceneSummary(id=scene.id, agents=agents, warnings=warnings, **about))
    return scenes, summaries


def write_scene(folder: Path, name: str, agents: list[str], description: str) -> Scene:
    """Write a scene in which these agents speak in turn, under an id of its own, and return it. Raises `InvalidInput`
    for what is no scene, `ServiceUnavailable` where it cannot be written."""
    plain = re.sub(r"[^\w]+", "-", name.lower()).strip("-_")[:60] or "scene"
    taken = {*read_scenes(folder)[0], *(path.stem for path in folder.glob("*.json"))}
    id = next(one for n in range(1, len(taken) + 2) if (one := plain if n == 1 else f"{plain}-{n}") not in taken)
    members = [{"instance_id": agent, "profile_id": agent} for agent in agents]
    document = {"id": id, "name": name, "description": description, "version": "1.0.0", "schema_version": "1.0"}
    scene = read_model(Scene, {**document, "agent_instances": members}, "the scene")
    if not (folder / f"{id}.json").resolve().is_relative_to(folder.parent.resolve()):
        raise InvalidInput(f"{folder} leads out of the project; nothing is written there")
    try:
        folder.mkdir(exist_ok=True)
        written = json.dumps({**document, "agent_instances": members}, ensure_ascii=False, indent=2)
        write_atomic(folder / f"{id}.json", f"{written}\n".encode())
    except OSError as error:
        raise ServiceUnavailable(f"{folder} cannot be written: {error.strerror or error}") from error
    return scene


def _warnings(scene: Scene) -> Iterator[str]:
    parts: dict[str, OpenModel] = {
        "$": scene,
        "$.scene_lifecycle_workflows": scene.scene_lifecycle_workflows,
        "$.turn_order": scene.turn_order,
        **{f"$.agent_instances[{place}]": agent for place, agent in enumerate(scene.agent_instances)},
        **{f"$.scheduled_tasks[{place}]": task for place, task in enumerate(scene.scheduled_tasks)},
    }
    for path, part in parts.items():
        for name in sorted({*(part.model_extra or {})} - {"$schema"}):
            yield f"{path}.{name}: has no effect{did_you_mean(name, type(part).model_fields)}"
