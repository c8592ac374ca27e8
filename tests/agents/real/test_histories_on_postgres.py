"""What `test_histories` shows of SQLite, of PostgreSQL."""

from test_histories import *  # noqa: F403
