"""What becomes of the outputs of a run before it ends: the calls that it makes from them where it was submitted with
`actions`, on whose behalf, and what hooks make of them."""

from __future__ import annotations

from tavern_engine.run.json_values import carried_outputs
from tavern_engine.run.record import withheld
from tavern_host import TOOL_MANAGER, PluginContext
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import PermissionDenied, TavernError
from tavern_host.contracts.executions import Run, RunActions, RunStatus


def check_principal(actions: RunActions | None, submitter: Principal) -> None:
    """Raise `PermissionDenied` where calls would be made for a principal that the submitter may not act for.

    The host may act for everybody, a person for agents and plugins, all others for themselves alone.
    """
    wanted = actions.principal if actions is not None else None
    if wanted is None or wanted == submitter or submitter.kind == "system":
        return
    if submitter.kind == "user" and wanted.kind in ("agent", "plugin"):
        return
    raise PermissionDenied(f"{submitter} may not have calls made on behalf of {wanted}")


async def with_call_results(run: Run, call: CallContext, context: PluginContext) -> Run:
    """Return a complete run whose outputs have the results of the calls in them; others as they are."""
    actions = run.actions
    if actions is None or run.status is not RunStatus.COMPLETE or not context.services.has(TOOL_MANAGER):
        return run
    call = call.child(run_id=run.id, principal=actions.principal)
    try:
        tools = context.services.get(TOOL_MANAGER)
        outputs = await tools.call_outputs(run.outputs, protocols=actions.protocols, call=call)
    except TavernError as error:
        context.log.warning("run %s: the calls in its outputs were not made: %s", run.id, error.message)
        return run
    return run.model_copy(update={"outputs": outputs})


async def filtered(run: Run, call: CallContext, context: PluginContext) -> Run:
    """Return the run with the outputs that the hooks return; a refusal withholds them."""
    if not context.hooks.implemented("tavern_after_execute"):
        return run
    try:
        changed = await context.hooks.filter("tavern_after_execute", run, call=call)
        return run.model_copy(update={"outputs": carried_outputs(changed.outputs)})
    except TavernError as refused:
        return withheld(run, refused.info)
