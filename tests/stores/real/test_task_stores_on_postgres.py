"""What `test_task_stores` shows of SQLite, of PostgreSQL."""

from test_task_stores import *  # noqa: F403
