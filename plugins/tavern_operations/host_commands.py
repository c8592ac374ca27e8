"""The commands that work on a project whose plugins do not: no plugin is loaded for them, and each gets a function that
makes the host that the options of `tavern` ask for. The host finds them by this module's name.
"""

from __future__ import annotations

from tavern_host import CommandGroup, CommandInfo, CommandParameter

_KEY = CommandParameter(name="key", help="The setting, such as extensions.acme.colour; or acme.colour.", required=True)

COMMANDS = (
    CommandInfo(
        name="settings list",
        help="List the settings of all plugins, or of one, and where each value comes from.",
        handler="tavern_operations.settings_commands:show",
        group=CommandGroup(help="Read and change the settings of plugins.", section="operate"),
        parameters=[CommandParameter(name="plugin", help="The plugin's name.")],
    ),
    CommandInfo(
        name="settings get",
        help="Print a setting's value.",
        examples=("tavern settings get acme.colour",),
        handler="tavern_operations.settings_commands:get",
        parameters=[_KEY],
    ),
    CommandInfo(
        name="settings set",
        help="Save a value for a setting. Before a value that begins with '-' write '--'.",
        examples=("tavern settings set acme.colour green", "tavern settings set acme.apiKey --stdin"),
        handler="tavern_operations.settings_commands:save",
        parameters=[
            _KEY,
            CommandParameter(name="value", help="The value, in the form of its type; JSON for a json setting."),
            CommandParameter(name="--stdin", type="flag", help="Read the value from standard input, as secrets are."),
        ],
    ),
    CommandInfo(
        name="settings reset",
        help="Take back the value that was saved.",
        examples=("tavern settings reset acme.colour",),
        handler="tavern_operations.settings_commands:reset",
        parameters=[_KEY],
    ),
    CommandInfo(
        name="audit tail",
        help="Show the newest entries of the audit log.",
        examples=("tavern audit tail --follow",),
        handler="tavern_operations.audit_commands:tail",
        group=CommandGroup(help="Read the log of who did what, and check that it is whole.", section="operate"),
        parameters=[
            CommandParameter(name="--lines", type="integer", default=20, help="How many entries."),
            CommandParameter(name="--follow", type="flag", help="Continue with new entries until Ctrl-C."),
        ],
    ),
    CommandInfo(
        name="audit verify",
        help="Check that nobody has changed the audit log.",
        handler="tavern_operations.audit_commands:verify",
    ),
    CommandInfo(
        name="backup",
        help="Write a project, with what the operator decided about it, into a file, while hosts work.",
        examples=("tavern backup inn-monday.tavern",),
        handler="tavern_operations.commands:backup",
        group=CommandGroup(section="operate"),
        parameters=[CommandParameter(name="file", type="path", help="The new file.", required=True)],
    ),
    CommandInfo(
        name="restore",
        help="Put a backup in the place of a project. What was there before is renamed, and stays.",
        examples=("tavern restore inn-monday.tavern --check", "tavern restore inn-monday.tavern"),
        handler="tavern_operations.commands:restore",
        group=CommandGroup(section="operate"),
        parameters=[
            CommandParameter(name="file", type="path", help="The backup.", required=True),
            CommandParameter(name="folder", type="path", help="Where to; by default, where the project was."),
            CommandParameter(name="--check", type="flag", help="Only say whether the backup is whole."),
            CommandParameter(name="--trust", type="flag", help="Take it even if another has made or changed it."),
        ],
    ),
    CommandInfo(
        name="adopt",
        help="Let what you decided about a project (grants, settings) count here, since you have moved it.",
        examples=("tavern adopt ../old-place",),
        handler="tavern_operations.commands:take_over",
        group=CommandGroup(section="operate"),
        parameters=[CommandParameter(name="folder", help="The folder in which it was before.", required=True)],
    ),
    CommandInfo(
        name="migrate",
        help="Bring all databases to the tables of this version; stop the server first.",
        handler="tavern_operations.commands:bring_up_to_date",
        group=CommandGroup(section="operate"),
        parameters=[
            CommandParameter(name="--dry-run", type="flag", help="Say what would be done, and try it on copies.")
        ],
    ),
    CommandInfo(
        name="why",
        help="Explain why something is as it is.",
        examples=("tavern why service:toolManager", "tavern why plugin:acme"),
        handler="tavern_operations.why:why",
        group=CommandGroup(section="operate"),
        parameters=[
            CommandParameter(
                name="subject", help="service:NAME, hook:NAME, permission:NAME or plugin:NAME.", required=True
            )
        ],
    ),
    CommandInfo(
        name="completion",
        help='Print a script with which a shell completes commands and names: `eval "$(tavern completion bash)"`.',
        examples=("tavern completion bash",),
        handler="tavern_operations.completion_script:script",
        group=CommandGroup(section="operate"),
        parameters=[CommandParameter(name="shell", help="bash, zsh or fish.", required=True)],
    ),
)
