"""What `test_scenes` shows, with all that crosses between host and plugins encoded and decoded."""

from test_scenes import *  # noqa: F403
