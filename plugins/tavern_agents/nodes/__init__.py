"""The nodes of this plugin: what a deliberation is built of besides the request to a model."""
