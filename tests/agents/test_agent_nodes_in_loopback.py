"""What `test_agent_nodes` shows, with all that crosses between host and plugins encoded and decoded."""

from test_agent_nodes import *  # noqa: F403
