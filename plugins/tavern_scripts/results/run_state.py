"""What is known of a run while it runs, and the result that is made of it in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from tavern_host.contracts.errors import TavernError
from tavern_scripts.api.scripts import (
    ScriptEnforced,
    ScriptError,
    ScriptErrorType,
    ScriptFile,
    ScriptResult,
    ScriptUsage,
)
from tavern_scripts.policy.planner import Plan
from tavern_scripts.results.event_queue import Say, event_of
from tavern_scripts.results.outcome import Outcome
from tavern_scripts.sandbox.choose import Chosen
from tavern_scripts.workers.launches import grants_of


@dataclass
class RunState:
    """What is known of a run so far, for its result."""

    plan: Plan
    enforced: ScriptEnforced
    outcome: Outcome
    usage: ScriptUsage | None = None
    input: int = 0
    files: Sequence[ScriptFile] = ()
    notes: list[str] = field(default_factory=list)


def new_state(plan: Plan, chosen: Chosen, say: Say) -> RunState:
    """Return the state of a run before its script begins."""
    outcome = Outcome(
        plan.limits,
        lambda heard: say(event_of(heard)),
        channel=plan.program.channel,
        any_text=plan.program.is_code,
        is_text=plan.request.protocol == "text",
        hidden=plan.hidden,
        unreadable=plan.unreadable,
    )
    return RunState(plan, enforced_by(plan, chosen.name, chosen.weaker), outcome)


def enforced_by(plan: Plan, backend: str, weaker: Sequence[str]) -> ScriptEnforced:
    """Return the limits and grants of a run, and the restrictions that the sandbox lacks."""
    return ScriptEnforced(
        backend=backend,
        limits=plan.limits,
        grants=grants_of(plan.granted, plan.program.name, plan.request.files),
        denied=[*plan.granted.denied],
        weaker=[*weaker],
    )


def result_of_run(state: RunState | None, output: JsonValue, error: ScriptError | None, wall_ms: float) -> ScriptResult:
    """Return the result of a run, whatever is known of it."""
    if state is None:
        return ScriptResult(success=False, error=error, usage=ScriptUsage(wall_ms=wall_ms))
    if error is not None:
        state.outcome.printed()
        if state.plan.granted.denied:
            lines = [error.details, "The script asked for more than it was granted:", *state.plan.granted.denied]
            error = error.model_copy(update={"details": "\n".join(line for line in lines if line)})
    measured = state.usage or ScriptUsage(wall_ms=wall_ms)
    counts = {"input": state.input, "output": state.outcome.output, "log": state.outcome.log.size}
    return ScriptResult(
        success=error is None,
        output_data=output,
        error=error,
        logs=[*state.outcome.log.lines(), *state.notes],
        files=[*state.files],
        enforced=state.enforced,
        usage=measured.model_copy(update=counts),
    )


def result_of_task(work: asyncio.Task[ScriptResult | TavernError]) -> ScriptResult:
    """Return the result of a run whose task has ended. Raises the error that it ended with."""
    if work.cancelled():
        error = ScriptError(
            type=ScriptErrorType.CANCELLED, message="the script was cancelled: scripts are being stopped"
        )
        return ScriptResult(success=False, error=error)
    found = work.result()
    if isinstance(found, TavernError):
        raise found
    return found
