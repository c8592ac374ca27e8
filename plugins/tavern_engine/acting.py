"""On whose behalf the calls in a run's outputs may be made."""

from __future__ import annotations

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.executions import RunActions


def check_principal(actions: RunActions | None, submitter: Principal) -> None:
    """Raise `PermissionDenied` where calls would be made for somebody whom the submitter may not act for.

    The host may act for everybody, a person for agents and plugins, all others for themselves alone.
    """
    wanted = actions.principal if actions is not None else None
    if wanted is None or wanted == submitter or submitter.kind == "system":
        return
    if submitter.kind == "user" and wanted.kind in ("agent", "plugin"):
        return
    raise PermissionDenied(f"{submitter} may not have calls made on behalf of {wanted}")
