"""What `test_knowledge_store` shows of files, of PostgreSQL."""

from test_knowledge_store import *  # noqa: F403
