"""Values of every kind are set on nodes and in the inspector, a loop is built with the mouse, and the first visit leads
to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect
from studio_bench import WIDE, Studio, canvas_node, drag, leave, node_library, publish, show

from tavern_host import Host
from tavern_host.testing.http import served

KINDS = {
    "id": "kinds",
    "name": "Kinds",
    "nodes": [
        {"id": "all", "type": "core:TestWidgets", "position": {"x": 0, "y": 0}},
        {"id": "one", "type": "core:Number", "position": {"x": 350, "y": 0}},
        {"id": "calculate", "type": "core:MathOperation", "position": {"x": 650, "y": 0}},
        {"id": "random", "type": "core:RandomNumber", "position": {"x": 350, "y": 200}},
        {"id": "ask", "type": "core:GenericLlmRequest", "position": {"x": 650, "y": 250}},
        {"id": "read", "type": "core:ReadFile", "position": {"x": 350, "y": 450}},
        {"id": "tools", "type": "core:AvailableTools", "position": {"x": 350, "y": 600}},
    ],
    "edges": [
        {"id": "e", "source": "one", "sourceHandle": "number", "target": "calculate", "targetHandle": "a"},
    ],
}


async def published(studio: Studio, name: str) -> dict[str, dict[str, Any]]:
    """Publish the workflow that is shown; return its nodes by id."""
    await publish(studio.page)
    workflow = await (await studio.site.get(f"/api/workflows/{name}")).json()
    return {node["id"]: node for node in workflow["nodes"]} | {"edges": workflow["edges"]}


async def test_every_kind_of_value_has_its_control(studio: Studio) -> None:
    page, site = studio.page, studio.site
    inspector = page.get_by_label("Inspector")
    await site.post("/api/workflows", json=KINDS)
    (site.host.project.root / "files" / "notes").mkdir(parents=True)
    (site.host.project.root / "files" / "notes" / "today.md").write_text("Hello")
    await studio.open("/workflows/kinds")
    every = canvas_node(page, "all")
    await every.get_by_label("single line", exact=True).fill("typed")
    await every.get_by_label("several lines", exact=True).fill("one\ntwo")
    await every.get_by_label("choice", exact=True).select_option("choice B")
    await every.get_by_label("Suggestions for integer with suggestions").select_option("1024")
    await every.get_by_label("boolean", exact=True).uncheck()
    await every.get_by_label("integer", exact=True).fill("500")
    await every.get_by_label("integer", exact=True).press("Tab")
    await expect(every.get_by_role("alert")).to_have_text("A number from 0 to 100 is needed.")
    await expect(every.get_by_label("integer", exact=True)).to_have_value("500")
    await every.get_by_label("integer", exact=True).fill("42")
    await every.get_by_label("integer", exact=True).press("Tab")
    await every.get_by_role("button", name="Edit JSON object in the inspector").click()
    for name, text in (("JSON object", '{"a": [1]}'), ("Markdown", "# New"), ("JavaScript", "run()")):
        await inspector.get_by_label(name).press("Control+a")
        await page.keyboard.press("Delete")
        await page.keyboard.insert_text(text)
    await inspector.get_by_role("slider", name="number", exact=True).fill("0.75")
    await expect(every.get_by_text('{"a":[1]}')).to_be_visible()
    await studio.picture("widgets")

    await canvas_node(page, "random").get_by_role("button", name="Draw again").click()
    await expect(canvas_node(page, "random").get_by_label("current value")).not_to_have_value("0")
    await canvas_node(page, "ask").get_by_label("model", exact=True).select_option("scripted")
    await canvas_node(page, "calculate").get_by_label("operation").select_option("Power")
    await expect(canvas_node(page, "calculate").get_by_text("base")).to_be_visible()
    await canvas_node(page, "read").get_by_label("path", exact=True).focus()
    await expect(canvas_node(page, "read").locator("option[value='notes/today.md']")).to_be_attached()
    await canvas_node(page, "read").get_by_label("path", exact=True).fill("notes/today.md")
    await canvas_node(page, "tools").locator("strong").click()
    await inspector.get_by_role("tab", name="Settings").click()
    for tool in ("text:shout", "workflow:greeting"):
        await inspector.get_by_label("Add a tool…").fill(tool)
        await inspector.get_by_label("Add a tool…").press("Enter")
    await studio.picture("widgets-tools")

    kept = await published(studio, "kinds")
    assert kept["all"]["inputValues"] == {
        "string_input": "typed",
        "text_input": "one\ntwo",
        "combo_select": "选项B",
        "int_with_suggestions": 1024,
        "boolean_toggle": False,
        "int_input": 42,
        "json_input": {"a": [1]},
        "markdown_input": "# New",
        "javascript_code_input": "run()",
        "float_input": 0.75,
    }
    assert kept["ask"]["inputValues"] == {"activated_model_id": "scripted"}
    assert kept["read"]["inputValues"] == {"path": "notes/today.md"}
    assert kept["tools"]["configValues"] == {"tools": ["text:shout", "workflow:greeting"]}
    assert kept["calculate"]["configValues"] == {"operationMode": "power"}
    assert [edge["targetHandle"] for edge in kept["edges"]] == ["base"]


async def test_a_loop_is_found_built_and_run_with_the_mouse(studio: Studio) -> None:
    page = studio.page
    inspector = page.get_by_label("Inspector")
    await studio.site.post(
        "/api/workflows",
        json={"id": "spin", "nodes": [{"id": "output", "type": "core:GroupOutput", "position": {"x": 900, "y": 100}}]},
    )
    await studio.open("/workflows/spin")
    await expect(page.get_by_role("button", name="A question to a language model")).to_be_visible()
    library = await node_library(page)
    await page.get_by_label("Search nodes…").fill("again zone")
    await library.get_by_role("button", name="Loop zone is a favourite").click()
    await library.get_by_role("button", name="Loop zone", exact=True).click()
    await page.get_by_label("Search nodes…").fill("")
    for section in ("Favourites", "Used last"):
        own = library.locator("section", has_text=section)
        await expect(own.get_by_role("button", name="Loop zone", exact=True)).to_be_visible()

    await inspector.get_by_role("button", name="Add a variable").click()
    await inspector.get_by_label("Type of value").select_option("float")
    await inspector.get_by_label("value begins with").fill("1")
    await inspector.get_by_label("Name of value").fill("total")
    await inspector.get_by_label("Name of value").press("Tab")
    await inspector.get_by_label("Count", exact=True).fill("5")
    await inspector.get_by_label("Count", exact=True).press("Tab")
    zone = canvas_node(page, "loop-zone")
    await leave(page)
    await page.keyboard.press("f")
    await page.get_by_label("Search nodes…").fill("calculate")
    await library.get_by_role("button", name="Calculate", exact=True).drag_to(zone, target_position={"x": 200, "y": 80})
    inner = canvas_node(page, "math-operation")
    await expect(inner).to_be_visible()  # the view fits it then
    for handle in ("a", "b"):
        await zone.locator(".source[data-handleid=in__total]").drag_to(
            inner.locator(f".target[data-handleid={handle}]")
        )
    await inner.locator(".source").drag_to(zone.locator(".target[data-handleid=next__total]"))
    await zone.locator(".source[data-handleid=out__total]").drag_to(canvas_node(page, "output").locator(".target"))
    await expect(page.locator(".vue-flow__edge")).to_have_count(4)
    await page.keyboard.press("Control+Enter")
    await expect(zone.get_by_text("5 iterations")).to_be_visible()
    await leave(page)
    await expect(inspector.get_by_text("32", exact=True)).to_be_visible()
    await studio.picture("loop-built")

    before = await published(studio, "spin")
    assert before["math-operation"]["parentNode"] == "loop-zone"
    await drag(page, zone.locator(".grip"), (60, 30))
    await drag(page, inner.locator("strong"), (0, 300))
    after = await published(studio, "spin")
    assert after["loop-zone"]["width"] > (before["loop-zone"].get("width") or 600)
    assert after["math-operation"].get("parentNode") is None


async def test_the_first_visit_leads_to_a_run_and_an_agent(browser: Browser, tmp_path: Path) -> None:
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as site:
        context = await browser.new_context(**WIDE)
        studio = await show(context, site, is_new=True)
        page, hint = studio.page, studio.page.get_by_text("Type a name above, then press Run.")
        await expect(page.locator(".vue-flow__node")).to_have_count(4)
        await expect(hint).to_be_visible()
        await studio.picture("first-visit")
        await page.get_by_role("button", name="Run", exact=True).first.click()
        await expect(page.get_by_role("alert")).to_have_text("Needs a value")
        await expect(page.get_by_label("Name", exact=True)).to_be_focused()
        await page.keyboard.type("Ada")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Inspector").get_by_text("Hello, Ada")).to_be_visible()
        await expect(hint).to_have_count(0)
        await page.get_by_role("link", name="Home").click()
        await page.get_by_role("link", name="Talk to Assistant").click()
        await expect(page.get_by_placeholder("Message Assistant…")).to_be_visible()
        await page.goto(f"http://127.0.0.1:{site.port}/")
        await page.reload()
        await expect(page.get_by_role("button", name="New workflow").first).to_be_visible()
        await expect(page.get_by_role("link", name="Talk to Assistant")).to_have_count(0)
        await context.close()
    assert studio.mistakes == []
