"""The routes of the run history: runs are called runs here, and have the form of the contracts."""

from __future__ import annotations

from tavern_engine.api.runs import RUN_STORE
from tavern_engine.journal.documents import document_of, unpack
from tavern_engine.run_query import run_filter
from tavern_engine.web.prompts import AT_ONCE, read_request
from tavern_engine.web.prompts import Prompt as Prompt  # what the route takes
from tavern_host import EXECUTION_ENGINE, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.documents import LARGE_TEXT
from tavern_host.contracts.http import answer_with
from tavern_workflows.api.redaction import masked_document


async def list_runs(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/runs`: a page of the history. The last page has fewer runs than its limit."""
    asked = run_filter(request.query)
    found = await context.services.get(EXECUTION_ENGINE).history(asked)
    return HttpResponse(data={"runs": [run.to_json() for run in found], "limit": asked.limit, "offset": asked.offset})


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/runs/{runId}`: large values are left out."""
    run = await context.services.get(EXECUTION_ENGINE).show(request.parameters["runId"])
    return await answer_with(run.to_json, is_large=len(run.nodes) > AT_ONCE)


async def workflow(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/runs/{runId}/workflow`: 404 where it is not kept. Secrets among the values of nodes are masked."""
    store = context.services.get(RUN_STORE)
    entry = await store.get(request.parameters["runId"])
    content = await store.content(entry.workflow)
    return await answer_with(lambda: masked_document(document_of(unpack(content))), is_large=len(content) > LARGE_TEXT)


async def output(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/runs/{runId}/outputs/{key}`, with `?nodeId=` of a node: the output as a stream, or ranges of it."""
    parameters = request.parameters
    blob = await context.services.get(EXECUTION_ENGINE).output(
        parameters["runId"], parameters["key"], node_id=request.query.get("nodeId"), call=request.call
    )
    return HttpResponse(blob=blob)


async def resume(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/runs/{runId}/resume`; the body is empty, or says with what it resumes, as that of `POST /api/prompt`.
    409 for a run that is running, is complete or cannot be resumed."""
    changed = await read_request(request, needs_workflow=False) if request.body else None
    engine = context.services.get(EXECUTION_ENGINE)
    resumed = await engine.resume(request.parameters["runId"], changed=changed, call=request.call)
    return HttpResponse(data=resumed.to_json())


async def rerun(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/runs/{runId}/rerun`: the id of the new run."""
    engine = context.services.get(EXECUTION_ENGINE)
    return HttpResponse(data={"runId": await engine.rerun(request.parameters["runId"], call=request.call)})


async def system_stats(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/system_stats`: how many runs may run at a time, run, and wait; what is wrong with the
    audit log."""
    queue = await context.services.get(EXECUTION_ENGINE).queue()
    return HttpResponse(
        data={
            "maxConcurrentWorkflows": context.settings.get("maxConcurrentRuns"),
            "runningExecutions": len(queue.running),
            "pendingExecutions": len(queue.pending),
            "auditLogProblem": context.audit.problem,
        }
    )
