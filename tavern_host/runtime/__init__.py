"""Where and how the code of plugins runs: in process, encoded for tests, on threads with deadlines.

Decides nothing about plugins.
"""
