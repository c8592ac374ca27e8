"""Alarms: unusual patterns in the audit log are published as the event `ALARM`, and sent to a webhook."""
