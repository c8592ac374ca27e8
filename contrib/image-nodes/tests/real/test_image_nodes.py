"""Pictures are made, changed and saved by nodes of a process of its own, where they stay."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tavern_host import EXECUTION_ENGINE, Blob, Host
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.tavern(plugins=["../../image_nodes"])

Node = tuple[str, dict[str, Any]]


def drawn(nodes: dict[str, Node], *edges: str) -> Workflow:
    """Return a workflow of nodes (type and values) with edges such as `a.picture > b.picture`."""
    ends = [[end.split(".") for end in edge.split(" > ")] for edge in edges]
    return Workflow.model_validate(
        {
            "name": "Pictures",
            "nodes": [
                {
                    "id": id,
                    "type": type,
                    "position": {"x": 320 * at, "y": 0},
                    "configValues": values.pop("config", {}),
                    "inputValues": values,
                }
                for at, (id, (type, values)) in enumerate(nodes.items())
            ],
            "edges": [
                {"id": f"e{at}", "source": a[0], "sourceHandle": a[1], "target": b[0], "targetHandle": b[1]}
                for at, (a, b) in enumerate(ends)
            ],
        }
    )


POSTER = drawn(
    {
        "sky": ("image-nodes:Gradient", {"width": 640, "height": 400, "first": "#14213d", "second": "#fca311"}),
        "sea": ("image-nodes:Gradient", {"width": 64, "height": 64, "first": "#023047", "second": "#8ecae6"}),
        "both": ("image-nodes:Blend", {"mode": "screen", "opacity": 0.6}),
        "title": ("image-nodes:Write", {"text": "Good evening", "size": 72}),
        "small": ("image-nodes:Resize", {"width": 320, "height": 200}),
        "file": ("image-nodes:Save", {"format": "JPEG"}),
    },
    "sky.picture > both.picture",
    "sea.picture > both.other",
    "both.picture > title.picture",
    "title.picture > small.picture",
    "small.picture > file.picture",
)


async def run(host: Host, workflow: Workflow) -> Run:
    done = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=workflow))
    assert done.error is None, done.error
    return done


async def opened(host: Host, blob: Any) -> Image.Image:
    return Image.open(BytesIO(await host.blobs.read(Blob.model_validate(blob))))


async def failure(host: Host, type: str, **values: Any) -> str:
    workflow = drawn({"n": (f"image-nodes:{type}", values)})
    done = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=workflow))
    assert done.error is not None
    return done.error.message


async def test_a_file_is_made_of_pictures_that_stay_in_their_process(host: Host) -> None:
    done = await run(host, POSTER)
    made = await opened(host, done.nodes["file"].output["file"])
    assert (made.format, made.size) == ("JPEG", (320, 200))
    assert "Image" in str(done.nodes["title"].output["picture"]), "the host has a handle of it"


async def test_each_node_shows_a_small_preview(host: Host) -> None:
    done = await run(host, POSTER)
    for id in ("sky", "both", "title", "small"):
        preview = await opened(host, done.nodes[id].output["preview"])
        assert (preview.format, max(preview.size)) == ("PNG", 256), id


async def test_a_second_run_uses_the_pictures_of_the_first(host: Host) -> None:
    await run(host, POSTER)
    done = await run(host, POSTER)
    assert (await opened(host, done.nodes["file"].output["file"])).size == (320, 200)


async def test_a_picture_of_the_project_becomes_another(host: Host, tavern_project: Path) -> None:
    (tavern_project / "files").mkdir(exist_ok=True)
    Image.new("RGB", (30, 20), "#ff0000").save(tavern_project / "files" / "red.png")
    nodes = {
        "read": ("core:ReadFile", {"path": "red.png", "config": {"format": "binary"}}),
        "load": ("image-nodes:Load", {}),
        "change": ("image-nodes:Change", {"look": "invert"}),
        "save": ("image-nodes:Save", {"format": "PNG"}),
        "write": ("core:WriteFile", {"path": "cyan.png"}),
    }
    edges = ("read.content > load.file", "load.picture > change.picture", "change.picture > save.picture")
    await run(host, drawn(nodes, *edges, "save.file > write.content"))
    with Image.open(tavern_project / "files" / "cyan.png") as made:
        assert (made.size, made.getpixel((0, 0))) == ((30, 20), (0, 255, 255))


@pytest.mark.tavern(settings={"extensions.image-nodes.megapixels": 1})
async def test_what_is_too_large_is_refused(host: Host) -> None:
    assert "expected 1 to 1 megapixels" in await failure(host, "Gradient", width=2000, height=2000)
    assert "expected 1 to 1 megapixels" in await failure(host, "Gradient", width=0, height=10)


async def test_mistakes_are_said(host: Host) -> None:
    assert "unknown color specifier" in await failure(host, "Gradient", first="no colour")
