"""How the creation assistant thinks: what its model reads, what becomes of the answer, and who asks.

Patches are applied by the service `assistant`.
"""
