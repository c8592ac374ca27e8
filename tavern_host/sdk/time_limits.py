"""Time limits for code of plugins that may ignore its cancellation."""

from __future__ import annotations

from tavern_host.runtime.deadline import until_given_up

__all__ = ["until_given_up"]
