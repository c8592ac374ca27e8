"""The plugin's nodes: every `@node` in this package is one."""
