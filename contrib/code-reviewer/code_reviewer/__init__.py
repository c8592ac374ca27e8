"""Four agents and the two workflows that they think with, all of them JSON: there is no code."""
