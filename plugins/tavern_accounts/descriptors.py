"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.accounts import KINDS
from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_CONTRACTS = "tavern_host.contracts.accounts"
_WEB = "tavern_accounts.web"
_DONE, _DONE_AND = "tavern_host.contracts.host_api:Done", f"{_WEB}:DoneAndSettled"
_USER, _SESSION, _NEW = f"{_CONTRACTS}:User", f"{_CONTRACTS}:Session", f"{_CONTRACTS}:NewSession"

# Everybody who is logged in may look at, and end, what is their own: these need `read`.
_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    (
        "POST",
        "/api/login",
        "log_in",
        "Log in with a name and a password; the answer sets a cookie.",
        {"body": f"{_WEB}:Credentials", "answer": f"{_CONTRACTS}:Identity", "access": "public"},
    ),
    ("GET", "/login", "login_page", "A page in which users log in.", {"content_type": "text/html", "access": "public"}),
    (
        "GET",
        "/login/openid",
        "openid",
        "Log in at the provider of OpenID Connect.",
        {"content_type": "text/html", "status": 303, "access": "public"},
    ),
    (
        "GET",
        "/login/openid/callback",
        "openid_callback",
        "Where the provider of OpenID Connect sends browsers back to.",
        {"content_type": "text/html", "access": "public"},
    ),
    ("POST", "/api/logout", "log_out", "End this session.", {"answer": _DONE, "access": "read"}),
    ("POST", "/api/logout/everywhere", "log_out_everywhere", "End all sessions.", {"answer": _DONE, "access": "read"}),
    ("GET", "/api/me", "me", "Who I am, and what I may do.", {"answer": f"{_CONTRACTS}:Identity"}),
    (
        "PUT",
        "/api/me/password",
        "change_password",
        "Change my password, which ends all my sessions and tokens.",
        {"body": f"{_WEB}:PasswordChange", "answer": _DONE_AND, "access": "read"},
    ),
    ("GET", "/api/tokens", "tokens", "My sessions and API tokens.", {"answer": f"{_SESSION}[]"}),
    (
        "POST",
        "/api/tokens",
        "make_token",
        "Make an API token with my rights.",
        {"body": f"{_WEB}:TokenBody", "answer": _NEW, "status": 201, "access": "read"},
    ),
    ("DELETE", "/api/tokens/{id}", "end_token", "Revoke a token of mine.", {"answer": _DONE_AND, "access": "read"}),
    ("GET", "/api/users", "list_users", "All users.", {"answer": f"{_USER}[]", "access": "operate"}),
    (
        "POST",
        "/api/users",
        "add_user",
        "Add a user.",
        {"body": f"{_WEB}:NewUser", "answer": _USER, "status": 201, "access": "operate"},
    ),
    ("DELETE", "/api/users/{name}", "remove_user", "Remove a user.", {"answer": _DONE_AND, "access": "operate"}),
    (
        "PUT",
        "/api/users/{name}/role",
        "set_role",
        "Give a user another role.",
        {"body": f"{_WEB}:RoleBody", "answer": f"{_CONTRACTS}:ChangedUser", "access": "operate"},
    ),
    (
        "PUT",
        "/api/users/{name}/password",
        "set_password",
        "Give a user another password.",
        {"body": f"{_WEB}:PasswordBody", "answer": _DONE_AND, "access": "operate"},
    ),
    (
        "DELETE",
        "/api/users/{name}/sessions",
        "end_sessions",
        "End all sessions of a user.",
        {"answer": _DONE, "access": "operate"},
    ),
    ("GET", "/api/members", "members", "Who may enter this project.", {"answer": f"{_CONTRACTS}:Members"}),
    (
        "PUT",
        "/api/members",
        "set_open",
        "Open this project to all users, or close it to all but its members.",
        {"body": f"{_WEB}:OpenBody", "answer": f"{_CONTRACTS}:ChangedMembers", "access": "operate"},
    ),
    (
        "PUT",
        "/api/members/{name}",
        "set_member",
        "Let a user enter this project, which its members alone may from then on.",
        {"body": f"{_WEB}:MemberBody", "answer": f"{_CONTRACTS}:ChangedMember", "access": "operate"},
    ),
    (
        "DELETE",
        "/api/members/{name}",
        "remove_member",
        "Let a user no longer enter this project.",
        {"answer": _DONE_AND, "access": "operate"},
    ),
    (
        "POST",
        "/api/work/stop",
        "stop",
        "Stop all work in flight of a user, an agent, a tool or a plugin.",
        {"body": f"{_WEB}:StopBody", "answer": _DONE_AND, "access": "operate"},
    ),
)

_NAME: tuple[str, str, dict[str, JsonValue]] = ("name", "The user's name.", {"required": True})
_COMMANDS: tuple[tuple[str, str, str, tuple[tuple[str, str, dict[str, JsonValue]], ...]], ...] = (
    (
        "users add",
        "add",
        "Add a user; the password is asked for, or read from standard input.",
        (_NAME, ("--role", "admin, creator, viewer, guest, or one of your own.", {"default": "creator"})),
    ),
    ("users list", "list_users", "List the users and their roles.", ()),
    ("users remove", "remove", "Remove a user with all sessions and tokens.", (_NAME,)),
    ("users passwd", "passwd", "Give a user another password, which ends all sessions and tokens.", (_NAME,)),
    ("users role", "role", "Give a user another role.", (_NAME, ("role", "The new role.", {"required": True}))),
    ("users logout", "logout", "End all sessions of a user; API tokens stay.", (_NAME,)),
    (
        "users token",
        "token",
        "Make an API token for a user, and show it this once.",
        (
            _NAME,
            ("--label", "What the token is for.", {"default": "token"}),
            ("--days", "How long it holds.", {"type": "integer", "default": 90}),
        ),
    ),
    ("members list", "list_members", "List who may enter the project.", ()),
    (
        "members add",
        "add_member",
        "Let a user enter the project, which its members and admins alone may from then on.",
        (_NAME, ("--role", "The role in this project; else the user's own.", {"default": ""})),
    ),
    ("members remove", "remove_member", "Let a user no longer enter the project.", (_NAME,)),
    ("members open", "open_project", "Open the project to all users.", ()),
    ("members close", "close_project", "Close the project to all but its members and admins.", ()),
    (
        "stop",
        "stop",
        "Stop all work in flight of a user, an agent, a tool or a plugin.",
        tuple((f"--{kind}", f"The {kind} whose work is stopped.", {}) for kind in KINDS),
    ),
)
_GROUPS = {
    "users": CommandGroup(help="Add people, and say what they may do.", section="people"),
    "members": CommandGroup(help="Say who may enter the project.", section="people"),
    "stop": CommandGroup(section="operate"),
}
_AT_SERVER = frozenset(
    {"users remove", "users role", "users logout", "members add", "members remove", "members open", "members close"}
    | {"stop"}
)
"""Commands that end work, which is the server's where one runs."""


def routes() -> list[RouteInfo]:
    """Return the routes of logins, users, tokens and members."""
    return [
        RouteInfo.model_validate(
            {"method": method, "path": path, "handler": f"{_WEB}:{handler}", "summary": summary, **more}
        )
        for method, path, handler, summary, more in _ROUTES
    ]


_EXAMPLES = """
tavern users add ada --role viewer
tavern users logout ada
tavern users passwd ada
tavern users remove ada
tavern users role ada viewer
tavern users token ada --label laptop --days 30
tavern members add ada --role viewer
tavern members remove ada
tavern stop --plugin acme
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern users …`, `tavern members …` and `tavern stop`."""
    return [
        CommandInfo(
            name=name,
            help=help,
            examples=examples_of(name, _EXAMPLES),
            handler=f"tavern_accounts.commands:{handler}",
            group=_GROUPS.get(name.split()[0]),
            at_server=name in _AT_SERVER,
            parameters=[
                CommandParameter.model_validate({"name": key, "help": text, **more}) for key, text, more in parameters
            ],
        )
        for name, handler, help, parameters in _COMMANDS
    ]
