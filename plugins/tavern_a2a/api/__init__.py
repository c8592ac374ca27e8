"""The bodies of requests of the Agent2Agent protocol."""
