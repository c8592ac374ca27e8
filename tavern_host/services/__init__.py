"""Services: providers in stacks, overrides on top, and the permission-checked views that plugins get.

Decides no permission.
"""
