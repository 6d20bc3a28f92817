"""Run memory: entries that the steps, tasks and agents of a run share by key."""
