"""The platform's routes and socket messages for nodes and runs. Thin: a run is called a prompt here."""

from __future__ import annotations

from functools import partial

from tavern_engine import EngineState
from tavern_engine.api.answers import NodesReloaded
from tavern_engine.run.json_values import prompt_form, queue_form
from tavern_engine.web.buttons import Values, read_click, written
from tavern_engine.web.languages import translated
from tavern_engine.web.prompts import AT_ONCE, read_payload, read_request
from tavern_host import EXECUTION_ENGINE, NODE_MANAGER, PLUGINS, CallContext, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.http import SocketMessage, SocketReply, answer_with
from tavern_host.contracts.nodes import NodeDefinition


async def list_nodes(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/nodes`: encoded once for as long as the node types stay as they are."""

    async def listed() -> list[NodeDefinition]:
        return await translated(await context.services.get(NODE_MANAGER).list_nodes(), context)

    stack = partial(context.services.get(PLUGINS).service_stack, NODE_MANAGER.name)
    return await context.own(EngineState).encoded.of_service(context.hooks.revision, listed, stack)


async def reload_nodes(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/nodes/reload`: load what is new or changed of plugins; how many node types there are then is answered
    and told to all clients."""
    changed = await context.services.get(PLUGINS).reload(call=request.call)
    count = len(await context.services.get(NODE_MANAGER).list_nodes())
    what = ", ".join(f"{plugin.name} is {plugin.state.value}" for plugin in changed)
    answer = NodesReloaded(message=what or "no plugin is new, changed or gone", count=count).to_json()
    context.events.publish("NODES_RELOADED", answer)
    return HttpResponse(data=answer)


async def submit(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/prompt`."""
    asked = await read_request(request)
    run_id = await context.services.get(EXECUTION_ENGINE).submit(asked, call=request.call)
    return HttpResponse(data={"promptId": run_id})


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/prompt/{promptId}`."""
    run = await context.services.get(EXECUTION_ENGINE).show(request.parameters["promptId"])
    return await answer_with(lambda: prompt_form(run), is_large=len(run.nodes) > AT_ONCE)


async def interrupt(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/interrupt/{promptId}`; 404 for a run that is not there or has finished."""
    message = await _interrupt(request.parameters["promptId"], request.call, context)
    return HttpResponse(data={"success": True, "message": message})


async def queue(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/executions`."""
    return HttpResponse(data=queue_form(await context.services.get(EXECUTION_ENGINE).queue()))


async def on_prompt_request(message: SocketMessage, context: PluginContext) -> list[SocketReply]:
    """`PROMPT_REQUEST`: the sender receives the run's id; what happens then is broadcast."""
    asked = await read_payload(message.payload)
    run_id = await context.services.get(EXECUTION_ENGINE).submit(asked, call=message.call)
    return [SocketReply(type="PROMPT_ACCEPTED_RESPONSE", payload={"promptId": run_id})]


async def on_interrupt_request(message: SocketMessage, context: PluginContext) -> list[SocketReply]:
    """`INTERRUPT_REQUEST`: the run's new status is broadcast."""
    run_id = message.payload.get("promptId")
    if not isinstance(run_id, str):
        raise InvalidInput("an INTERRUPT_REQUEST needs a `promptId`")
    await _interrupt(run_id, message.call, context)
    return []


async def press(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/nodes/{type}/actions/{action}`; the body has the node's `inputs` and `config`, or is empty."""
    values = await request.body_as(Values) if request.body else Values()
    full_type, action = request.parameters["type"], request.parameters["action"]
    changed = await context.services.get(NODE_MANAGER).act(
        full_type, action, inputs=values.inputs or {}, config=values.config or {}, call=request.call
    )
    return HttpResponse(data={"inputValues": changed})


async def on_button_click(message: SocketMessage, context: PluginContext) -> list[SocketReply]:
    """`button_click`: the sender receives the input values of the node that change."""
    click = read_click(message.payload)
    full_type, inputs, config = await written(click, context)
    changed = await context.services.get(NODE_MANAGER).act(
        full_type, click.button_name, inputs=inputs, config=config, call=message.call
    )
    payload = {"nodeId": click.node_id, "buttonName": click.button_name, "inputValues": changed}
    return [SocketReply(type="NODE_ACTION_RESULT", payload=payload)]


async def _interrupt(run_id: str, call: CallContext, context: PluginContext) -> str:
    if not await context.services.get(EXECUTION_ENGINE).interrupt(run_id, call=call):
        raise NotFound(f"the run {run_id!r} has finished already")
    return f"the run {run_id} is being interrupted"
