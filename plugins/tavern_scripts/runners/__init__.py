"""What runs inside of sandboxes beside scripts. The host imports nothing of it."""
