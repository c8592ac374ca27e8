"""The event bus: numbered events and bounded subscriptions. Transport to clients is in `server`."""
