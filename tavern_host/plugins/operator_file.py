"""The operator's `host.yaml` as data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from tavern_host.common.proxies import ProxySettings
from tavern_host.contracts.audit import AuditLimits
from tavern_host.contracts.plugins import Placement
from tavern_host.contracts.wire import Model

THIRD_PARTY = "thirdParty"
"""Stands in `placement` for all plugins that are not first-party; no plugin can be called so."""

Origin = Annotated[str, Field(pattern=r"^https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?$")]
"""The origin of a page (RFC 6454), in the form in which browsers send it."""


class OperatorFile(Model):
    """`host.yaml`: what the operator decides, for every project of this user.

    `trust` names plugins that need no review (but for the code of a folder in a project), `disabled` those
    that are not loaded, `overrides` orders the plugins that override one service (the last is on top), `audit`
    says when a file of the audit log is closed, `proxy` which proxies are used in place of the environment's, `origins`
    whose pages may send requests with a token, each as `https://inn.example`. `placement` says by name where plugins
    run, and under `thirdParty` where those run that nobody placed.
    """

    trust: list[str] = Field(default_factory=list)
    disabled: list[str] = Field(default_factory=list)
    overrides: dict[str, list[str]] = Field(default_factory=dict)
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    audit: AuditLimits = Field(default_factory=AuditLimits)
    proxy: ProxySettings | None = None
    origins: list[Origin] = Field(default_factory=list)
    placement: dict[str, Placement] = Field(default_factory=dict)
