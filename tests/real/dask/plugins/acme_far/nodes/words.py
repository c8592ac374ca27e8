"""A module of the plugin beside its nodes."""

GREETING = "hello from afar"
