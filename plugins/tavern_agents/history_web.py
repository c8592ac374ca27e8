"""The HTTP routes of conversations; each hands over to the service `chatHistory` and shapes its answer."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import Field

from tavern_agents.api.answers import BranchQuery, IdQuery, OfQuery
from tavern_agents.api.histories import CHAT_HISTORY, ChatHistory, HistoryExport
from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.documents import read_model, to_thread_if_large
from tavern_host.contracts.host_api import PageQuery
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatMessage

M = TypeVar("M", bound=Model)


class AddBody(Model):
    """The body of `POST …/messages`."""

    messages: list[ChatMessage] = Field(min_length=1)
    branch: str | None = None
    parent_id: str | None = None
    head: str | None = None


class EditBody(Model):
    """The body of `POST …/messages/{message}/edit`."""

    content: str
    head: str
    branch: str | None = None
    keep_rest: bool = False


class SwipeBody(Model):
    """The body of `POST …/messages/{message}/swipe`."""

    messages: list[ChatMessage] = Field(min_length=1)
    head: str
    branch: str | None = None


class ActiveBody(Model):
    """The body of `POST …/active`."""

    branch: str | None = None
    message_id: str | None = None
    head: str | None = None
    exactly: bool = False


class BranchBody(Model):
    """The body of `POST …/branches`."""

    name: str
    message_id: str | None = None


class TitleBody(Model):
    """The body of `PATCH /api/histories/{id}`."""

    title: str | None


class RenameBody(Model):
    """The body of `POST …/branches/{branch}/rename`."""

    name: str


class ForkBody(Model):
    """The body of `POST …/fork`."""

    new_id: str
    message_id: str | None = None


async def list_histories(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with conversations, the latest changed first: `?limit=&offset=`."""
    return _list(await _service(context).list_histories(**_page(request)))


async def get_history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a conversation's branches."""
    return _one(await _service(context).get_history(_id(request)))


async def delete_history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Forget a conversation."""
    return HttpResponse(data={"deleted": await _service(context).delete(_id(request), call=request.call)})


async def load(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the messages of a branch, oldest first: `?branch=&leaf=&last=`."""
    asked = request.read_query(BranchQuery)
    branch, leaf = asked.branch or None, asked.leaf or None
    return _list(await _service(context).load_branch(_id(request), branch, leaf=leaf, last=asked.last))


async def children(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the messages right behind `?of=`, or with the first ones."""
    return _list(await _service(context).children(_id(request), request.read_query(OfQuery).of or None))


async def tree(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the places of all messages: `?limit=&offset=`."""
    return _list(await _service(context).tree(_id(request), **_page(request)))


async def add(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Keep messages."""
    return _list(await _service(context).add(_id(request), **_body(AddBody, request), call=request.call), 201)


async def edit(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Keep a changed copy of a message beside it."""
    body, message = _body(EditBody, request), request.parameters["message"]
    return _list(await _service(context).edit(_id(request), message, **body, call=request.call), 201)


async def swipe(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Keep another answer beside one."""
    body, message = _body(SwipeBody, request), request.parameters["message"]
    return _list(await _service(context).swipe(_id(request), message, **body, call=request.call), 201)


async def activate(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make a branch the active one, or move it."""
    return _one(await _service(context).activate(_id(request), **_body(ActiveBody, request), call=request.call))


async def fork(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make a branch."""
    return _one(await _service(context).fork(_id(request), **_body(BranchBody, request), call=request.call), 201)


async def rename_history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Give a conversation a title."""
    body = _body(TitleBody, request)
    return _one(await _service(context).rename_history(_id(request), **body, call=request.call))


async def rename_branch(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Give a branch another name."""
    body, branch = _body(RenameBody, request), request.parameters["branch"]
    return _one(await _service(context).rename_branch(_id(request), branch, **body, call=request.call))


async def delete_branch(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Forget the name of a branch."""
    branch = request.parameters["branch"]
    return _one(await _service(context).delete_branch(_id(request), branch, call=request.call))


async def fork_history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Begin a conversation with copies of another's messages."""
    body = _body(ForkBody, request)
    return _one(await _service(context).fork_history(_id(request), **body, call=request.call), 201)


async def export_history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a whole conversation."""
    return _one(await _service(context).export_history(_id(request)))


async def import_history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Keep an exported conversation, under `?id=` if that is given."""
    exported = await to_thread_if_large(request.is_large, _exported, request)
    history = request.read_query(IdQuery).id or None
    return _one(await _service(context).import_history(exported, history_id=history, call=request.call), 201)


def _exported(request: HttpRequest) -> HistoryExport:
    return read_model(HistoryExport, request.json_body(), "the body is no exported conversation")


def _service(context: PluginContext) -> ChatHistory:
    return context.services.get(CHAT_HISTORY)


def _id(request: HttpRequest) -> str:
    return request.parameters["id"]


def _page(request: HttpRequest) -> dict[str, int]:
    return request.read_query(PageQuery).model_dump(exclude_none=True)


def _body(model: type[M], request: HttpRequest) -> dict[str, Any]:
    """Return the arguments that the body gives."""
    return dict(request.read(model))


def _one(found: Model, status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, data=found.to_json())


def _list(found: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, data=[one.to_json() for one in found])
