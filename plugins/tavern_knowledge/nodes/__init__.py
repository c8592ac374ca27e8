"""Nodes that read knowledge."""
