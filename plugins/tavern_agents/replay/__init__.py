"""Runs of agents that are recorded and played again. What a run does is the loop's business, here as always."""
