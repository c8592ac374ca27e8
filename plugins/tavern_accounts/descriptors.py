"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.commands import CommandInfo, CommandParameter
from tavern_host.contracts.http import RouteInfo

_CONTRACTS = "tavern_host.contracts.accounts"
_WEB = "tavern_accounts.web"
_DONE = "tavern_host.contracts.host_api:Done"
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
    ("POST", "/api/logout", "log_out", "End this session.", {"answer": _DONE, "access": "read"}),
    ("POST", "/api/logout/everywhere", "log_out_everywhere", "End all sessions.", {"answer": _DONE, "access": "read"}),
    ("GET", "/api/me", "me", "Who I am, and what I may do.", {"answer": f"{_CONTRACTS}:Identity"}),
    (
        "PUT",
        "/api/me/password",
        "change_password",
        "Change my password, which ends all my sessions and tokens.",
        {"body": f"{_WEB}:PasswordChange", "answer": _DONE, "access": "read"},
    ),
    ("GET", "/api/tokens", "tokens", "My sessions and API tokens.", {"answer": f"{_SESSION}[]"}),
    (
        "POST",
        "/api/tokens",
        "make_token",
        "Make an API token with my rights.",
        {"body": f"{_WEB}:TokenBody", "answer": _NEW, "status": 201, "access": "read"},
    ),
    ("DELETE", "/api/tokens/{id}", "end_token", "Revoke a token of mine.", {"answer": _DONE, "access": "read"}),
    ("GET", "/api/users", "list_users", "All users.", {"answer": f"{_USER}[]", "access": "operate"}),
    (
        "POST",
        "/api/users",
        "add_user",
        "Add a user.",
        {"body": f"{_WEB}:NewUser", "answer": _USER, "status": 201, "access": "operate"},
    ),
    ("DELETE", "/api/users/{name}", "remove_user", "Remove a user.", {"answer": _DONE, "access": "operate"}),
    (
        "PUT",
        "/api/users/{name}/role",
        "set_role",
        "Give a user another role.",
        {"body": f"{_WEB}:RoleBody", "answer": _USER, "access": "operate"},
    ),
    (
        "PUT",
        "/api/users/{name}/password",
        "set_password",
        "Give a user another password.",
        {"body": f"{_WEB}:PasswordBody", "answer": _DONE, "access": "operate"},
    ),
    (
        "DELETE",
        "/api/users/{name}/sessions",
        "end_sessions",
        "End all sessions of a user.",
        {"answer": _DONE, "access": "operate"},
    ),
)

_NAME: tuple[str, str, dict[str, JsonValue]] = ("name", "The user's name.", {"required": True})
_COMMANDS: tuple[tuple[str, str, str, tuple[tuple[str, str, dict[str, JsonValue]], ...]], ...] = (
    (
        "add",
        "add",
        "Add a user; the password is asked for, or read from standard input.",
        (_NAME, ("--role", "admin, creator, viewer, or one of your own.", {"default": "creator"})),
    ),
    ("list", "list_users", "List the users and their roles.", ()),
    ("remove", "remove", "Remove a user with all sessions and tokens.", (_NAME,)),
    ("passwd", "passwd", "Give a user another password, which ends all sessions and tokens.", (_NAME,)),
    ("role", "role", "Give a user another role.", (_NAME, ("role", "The new role.", {"required": True}))),
    ("logout", "logout", "End all sessions of a user; API tokens stay.", (_NAME,)),
    (
        "token",
        "token",
        "Make an API token for a user, and show it this once.",
        (
            _NAME,
            ("--label", "What the token is for.", {"default": "token"}),
            ("--days", "How long it holds.", {"type": "integer", "default": 90}),
        ),
    ),
)


def routes() -> list[RouteInfo]:
    """Return the routes of logins, users and tokens."""
    return [
        RouteInfo.model_validate(
            {"method": method, "path": path, "handler": f"{_WEB}:{handler}", "summary": summary, **more}
        )
        for method, path, handler, summary, more in _ROUTES
    ]


def commands() -> list[CommandInfo]:
    """Return the commands `tavern users …`."""
    return [
        CommandInfo(
            name=f"users {name}",
            help=help,
            handler=f"tavern_accounts.commands:{handler}",
            parameters=[
                CommandParameter.model_validate({"name": key, "help": text, **more}) for key, text, more in parameters
            ],
        )
        for name, handler, help, parameters in _COMMANDS
    ]
