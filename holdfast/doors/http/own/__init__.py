"""Our own routes, below /api, and health, metrics and description of a server."""
