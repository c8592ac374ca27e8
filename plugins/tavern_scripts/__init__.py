"""The first-party plugin `tavern-scripts`: scripts of agents and plugins, each in a sandbox of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter
from tavern_host.contracts.metrics import Figure, Tally
from tavern_host.contracts.services import ServiceInfo
from tavern_host.sdk.decorator import hookimpl

if TYPE_CHECKING:
    from tavern_scripts.service import Scripts


class State:
    """What the parts of this plugin share. `scripts` is None until this plugin's own service is used."""

    def __init__(self, context: PluginContext) -> None:
        self.scripts: Scripts | None = None
        self.runs = Tally("scripts", "Scripts that ran.", "sandbox", "status")


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the services that run scripts, for callers and for agents."""
    return [
        ServiceInfo(service="scriptExecution", handler="tavern_scripts.service:Scripts"),
        ServiceInfo(service="scriptTools", handler="tavern_scripts.agent_tools:AgentTools"),
    ]


@hookimpl
async def tavern_settle_work(which: WorkFilter, call: CallContext, context: PluginContext) -> list[SettledWork]:
    """End the sessions of people who are gone, or that somebody stops."""
    scripts = context.own(State).scripts
    return [] if scripts is None else await scripts.end_work(which, call)


@hookimpl
async def tavern_collect_figures(context: PluginContext) -> list[Figure]:
    """Return how often scripts ran."""
    return context.own(State).runs.figures()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return `tavern scripts doctor` and `tavern scripts run`."""
    return [
        CommandInfo(
            name="scripts doctor",
            help="Say which sandbox scripts run in here, what was tried out of it, and what to install.",
            handler="tavern_scripts.commands:doctor",
            group=CommandGroup(help="Try scripts in the sandbox, and see what it holds.", section="build"),
        ),
        CommandInfo(
            name="scripts run",
            help="Run a script file in the sandbox and show what it prints; with an input its result, as of a tool.",
            examples=('tavern scripts run tools/count.py --json-input \'{"text": "ale"}\'',),
            handler="tavern_scripts.commands:run_script",
            parameters=[
                CommandParameter(name="file", type="path", required=True, help="The script."),
                CommandParameter(name="--json-input", help="What it reads from stdin, as JSON; @FILE reads a file."),
                CommandParameter(name="--entry-point", help="The function of it that is called with the input."),
                CommandParameter(name="--language", help="python, nodejs, bun or wasm; else what its name says."),
                CommandParameter(name="--timeout", type="number", help="How many seconds it may take."),
                CommandParameter(
                    name="--host", multiple=True, help="A host that it asks to reach, of those that the policy allows."
                ),
                CommandParameter(
                    name="--write", multiple=True, help="A folder that it asks to keep, such as .cache/**."
                ),
                CommandParameter(
                    name="--read", multiple=True, help="A file of the project's files folder that it may read."
                ),
            ],
        ),
    ]
