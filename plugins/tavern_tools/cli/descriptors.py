"""The commands that the plugin offers. What they do is imported when one is given."""

from __future__ import annotations

from tavern_host.contracts.commands import CommandInfo, CommandParameter
from tavern_host.contracts.toolcalls import TaskStatus

_FILTERS = [
    CommandParameter(name="--tag", help="Only those with this tag."),
    CommandParameter(name="--namespace", help="Only those whose ids begin with this word."),
    CommandParameter(name="--kind", help="Only those of this kind: workflow, node, service or script."),
    CommandParameter(name="--plugin", help="Only those of this plugin."),
    CommandParameter(name="--text", help="Only those with this text in id, name or description."),
]
"""What a list of tools can be limited to."""


def tool_commands() -> list[CommandInfo]:
    """Return the commands about tools and action text."""
    handlers = "tavern_tools.cli.commands"
    tool = CommandParameter(name="id", help="The tool's id, or ID@RANGE (kb:Query@^1.2).", required=True)
    protocol = CommandParameter(name="--protocol", help="Only this action protocol.", multiple=True)
    return [
        CommandInfo(
            name="tools list",
            help="List the tools.",
            handler=f"{handlers}:list_tools",
            parameters=_FILTERS,
        ),
        CommandInfo(
            name="tools show",
            help="Show one tool: what it does, its parameters, and where it comes from.",
            handler=f"{handlers}:show_tool",
            parameters=[tool],
        ),
        CommandInfo(
            name="tools call",
            help="Call a tool, and wait for it.",
            handler=f"{handlers}:call_tool",
            parameters=[
                tool,
                CommandParameter(
                    name="--arg",
                    help="An argument as NAME=VALUE; the value is converted to the parameter's type.",
                    multiple=True,
                ),
                CommandParameter(name="--arguments", help="All arguments as a JSON object; --arg comes on top."),
            ],
        ),
        CommandInfo(
            name="tools docs",
            help="Show the documentation of tools that a language model gets, and how it asks for calls.",
            handler=f"{handlers}:document_tools",
            parameters=[
                CommandParameter(name="--tool", help="Only this tool; may be repeated.", multiple=True),
                CommandParameter(name="--native", type="flag", help="As an LLM's native function calling has them."),
                protocol,
            ],
        ),
        CommandInfo(
            name="tools check",
            help="Check tool files: by default those of the project.",
            handler=f"{handlers}:check_tools",
            parameters=[CommandParameter(name="--path", type="path", help="A file or folder.", multiple=True)],
        ),
        CommandInfo(
            name="parse",
            help="Show the tool calls that action text asks for, without making them.",
            handler=f"{handlers}:parse",
            parameters=[
                CommandParameter(name="file", help="The file, or - for stdin.", type="path", required=True),
                protocol,
            ],
        ),
    ]


def task_commands() -> list[CommandInfo]:
    """Return the commands of tasks and approvals."""
    handlers = "tavern_tools.cli.task_commands"
    task = CommandParameter(name="task", required=True, help="The id of a task, or the beginning of it.")
    comment = CommandParameter(name="--comment", help="What to say about the decision.")
    limit = CommandParameter(name="--limit", type="integer", default=20, help="At most so many.")
    tool = CommandParameter(name="--tool", help="Those of this tool; * and ? stand for any characters.")
    return [
        CommandInfo(
            name="tasks list",
            help="List tasks of tools, newest first.",
            handler=f"{handlers}:list_tasks",
            parameters=[
                CommandParameter(
                    name="--status",
                    multiple=True,
                    help=f"Those of this status: {', '.join(status.value for status in TaskStatus)}.",
                ),
                tool,
                CommandParameter(name="--principal", help="Those of this caller, such as agent:writer."),
                limit,
            ],
        ),
        CommandInfo(
            name="tasks show",
            help="Show a task: what was asked for, how it stands, and what it gave.",
            handler=f"{handlers}:show_task",
            parameters=[
                task,
                CommandParameter(name="--wait", type="number", default=0, help="Wait so many seconds for its end."),
            ],
        ),
        CommandInfo(name="tasks cancel", help="Cancel a task.", handler=f"{handlers}:cancel_task", parameters=[task]),
        CommandInfo(
            name="approvals list",
            help="List the calls that wait for a decision, newest first.",
            handler=f"{handlers}:list_approvals",
            parameters=[tool, limit],
        ),
        CommandInfo(
            name="approvals approve",
            help="Let a call be made that waits for a decision, as it is or with other arguments.",
            handler=f"{handlers}:approve",
            parameters=[
                task,
                CommandParameter(
                    name="--arg",
                    multiple=True,
                    help="Another value for an argument as NAME=VALUE; it is converted to the parameter's type.",
                ),
                CommandParameter(name="--arguments", help="All arguments in place of its own, as a JSON object."),
                comment,
            ],
        ),
        CommandInfo(
            name="approvals refuse",
            help="Refuse a call that waits for a decision.",
            handler=f"{handlers}:refuse",
            parameters=[task, comment],
        ),
    ]
