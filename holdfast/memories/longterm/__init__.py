"""Long-term memory: what a user told an agent, found again by meaning in any later session."""
