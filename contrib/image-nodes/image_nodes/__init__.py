"""Nodes for pictures. They run in a process of their own, where the pictures stay; see `nodes`."""
