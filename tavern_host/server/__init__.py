"""The aiohttp application: transport, authentication, the host's own routes. Every other route is a plugin's."""
