"""Our own routes, under /api, and what a server tells of itself."""
