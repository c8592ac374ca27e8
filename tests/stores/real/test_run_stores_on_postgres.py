"""What `test_run_stores` shows of SQLite, of PostgreSQL."""

from test_run_stores import *  # noqa: F403
