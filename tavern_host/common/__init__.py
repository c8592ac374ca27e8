"""What the host and its plugins share that needs no host: redaction, queries, proxies, the context of log lines."""
