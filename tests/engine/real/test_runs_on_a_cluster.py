"""What `test_runs` shows at the host, on a cluster."""

from test_runs import *  # noqa: F403
