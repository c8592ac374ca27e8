"""The HTTP routes of triggers, and the one at which webhooks arrive; each hands over to the service."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.common.redaction import masked
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.wire import Model
from tavern_triggers import own_triggers, webhooks
from tavern_triggers.api.answers import FiringQuery, HookAnswer, Times
from tavern_triggers.api.triggers import TRIGGER_MANAGER, FiringStatus, Schedule, Trigger, TriggerManager, Webhook
from tavern_triggers.files import config_of


class EnableBody(Model):
    """The body of `POST …/enable`: a webhook's secret, where it is given and not made; whether it gets a new one."""

    secret: str = Field(default="", max_length=500)
    rotate: bool = False


class FireBody(Model):
    """The body of `POST …/fire`: what is said to have happened."""

    payload: dict[str, JsonValue] = Field(default_factory=dict)


async def list_triggers(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with all triggers."""
    return HttpResponse(data=[_shown(request, one) for one in await _service(context).list_triggers()])


async def list_kinds(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the kinds of triggers."""
    return HttpResponse(data=[one.to_json() for one in await _service(context).kinds()])


async def times(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the next times of a schedule."""
    found = await _service(context).times(request.read(Schedule))
    return HttpResponse(data=Times(times=found).to_json())


async def get_trigger(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a trigger."""
    return HttpResponse(data=_shown(request, await _service(context).get(request.parameters["id"])))


async def save_trigger(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Write a trigger's file."""
    trigger = request.read(Trigger)
    return HttpResponse(
        data=(await _service(context).save(request.parameters["id"], trigger, call=request.call)).to_json()
    )


async def delete_trigger(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Delete a trigger."""
    await _service(context).delete(request.parameters["id"], call=request.call)
    return HttpResponse(status=204, body=b"")


async def enable(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Switch a trigger on."""
    body = request.read(EnableBody) if request.body else EnableBody()
    state = await _service(context).enable(request.parameters["id"], **dict(body), call=request.call)
    return HttpResponse(data=state.to_json())


async def disable(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Switch a trigger off."""
    return HttpResponse(data=(await _service(context).disable(request.parameters["id"], call=request.call)).to_json())


async def fire(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Fire a trigger now."""
    body = request.read(FireBody) if request.body else FireBody()
    firing = await _service(context).fire(request.parameters["id"], body.payload, call=request.call)
    return HttpResponse(status=202, data=firing.to_json())


async def history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the firings of a trigger."""
    trigger_id, limit = request.parameters["id"], request.read_query(FiringQuery).limit
    return HttpResponse(data=[one.to_json() for one in await _service(context).history(trigger_id, limit=limit)])


async def hook(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Fire a webhook's trigger; whatever is not right with who sends it, nothing is said of what there is here."""
    triggers = await own_triggers(context)
    if triggers is None:
        raise NotFound("there is no webhook at this address")
    kept = await triggers.live(request.parameters["id"])
    config = Webhook.model_validate(dict(config_of(kept.trigger)))
    secret, given = webhooks.opened(context, kept.secret), request.parameters.get("secret", "")
    key = webhooks.verified(config.auth, secret, given, request.headers, request.body)
    payload = webhooks.payload_of(request.body, request.headers)
    firing = await triggers.fired(kept, f"hook {key or request.call.id}", payload)
    if config.answer == "result":
        firing = await triggers.firings.settled(firing, config.seconds)
    is_done = config.answer == "result" and firing.status.is_final
    answer = HookAnswer(firing_id=firing.id, status=firing.status, run_id=firing.run, reason=firing.reason)
    if is_done and firing.status is FiringStatus.COMPLETE:
        answer = answer.model_copy(update={"outputs": await triggers.firings.outputs(firing.run or "", kept.trigger)})
    return HttpResponse(status=200 if is_done else 202, data=answer.to_json())


def _service(context: PluginContext) -> TriggerManager:
    return context.services.get(TRIGGER_MANAGER)


def _shown(request: HttpRequest, state: Any) -> JsonValue:
    """Return a trigger as it is shown: who may only look sees no secret that somebody wrote into it."""
    data = state.to_json()
    return data if request.may_create else masked(data)
