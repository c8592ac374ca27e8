"""The only way out of a sandbox: which hosts may be reached, the proxy that holds to it, and the relay inside."""
