"""What a plugin is given: the protocols that describe it (`protocols`), and the parts behind them (`facilities`).

Importing this package imports the protocols alone, so that `import tavern_host` stays cheap.
"""

from __future__ import annotations

from tavern_host.context.protocols import (
    Audit,
    Contribution,
    Events,
    Hooks,
    Http,
    NodeContext,
    PluginContext,
    Project,
    ServiceMethod,
    Services,
    Settings,
    Subscription,
    Tasks,
)

__all__ = [
    "Audit",
    "Contribution",
    "Events",
    "Hooks",
    "Http",
    "NodeContext",
    "PluginContext",
    "Project",
    "ServiceMethod",
    "Services",
    "Settings",
    "Subscription",
    "Tasks",
]
