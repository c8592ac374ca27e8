"""Calls that outlive the request for them: stored, decided about, run, notified about."""
