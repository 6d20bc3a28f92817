"""Run memory: what the steps, tasks and agents of one run share, by namespaced key."""
