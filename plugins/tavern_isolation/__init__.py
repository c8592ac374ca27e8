"""Runs plugins in processes of their own, behind the same contracts as in the host's process."""
