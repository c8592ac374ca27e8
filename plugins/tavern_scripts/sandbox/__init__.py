"""The sandboxes that scripts run in: how they are made, proven, chosen and taken away. What a script may do is decided
elsewhere."""
