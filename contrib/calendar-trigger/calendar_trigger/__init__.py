"""The kind of trigger `calendar-trigger:event`: `trigger.py` finds what is due, `calendars.py` reads calendars."""

from __future__ import annotations

from tavern_host import hookimpl
from tavern_triggers.api.kinds import TriggerKindInfo


@hookimpl
def tavern_register_trigger_kinds() -> list[TriggerKindInfo]:
    """Return the kind, with what a trigger's `config` may say."""
    return [
        TriggerKindInfo(
            name="calendar-trigger:event",
            handler=f"{__name__}.trigger:poll",
            description="An event of a calendar begins, or will in some minutes.",
            config_schema={
                "type": "object",
                "properties": {
                    "calendar": {"type": "string", "description": "Its name in the plugin's settings.", "minLength": 1},
                    "minutesBefore": {"type": "number", "default": 0, "minimum": 0, "maximum": 40_320},
                    "contains": {"type": "string", "description": "Only events with this text in their summary."},
                    "timeZone": {
                        "type": "string",
                        "description": "Where events without a zone, and whole days, begin; of the IANA database.",
                        "default": "UTC",
                    },
                },
                "required": ["calendar"],
                "additionalProperties": False,
            },
            seconds=5,
        )
    ]
