"""Floor 0: what everything stands on. Imports nothing of ours."""
