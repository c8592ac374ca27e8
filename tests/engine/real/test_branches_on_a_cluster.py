"""What `test_branches` shows at the host, on a cluster."""

from test_branches import *  # noqa: F403
