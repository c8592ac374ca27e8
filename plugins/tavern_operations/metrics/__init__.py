"""The figures of the host and its plugins: the service `metrics`, `GET /metrics` for Prometheus, `tavern top`."""
