"""What `test_agent_loop` shows, with all that crosses between host and plugins encoded and decoded."""

from test_agent_loop import *  # noqa: F403
