"""What `test_policies` shows at the host, on a cluster."""

from test_policies import *  # noqa: F403
