"""Plans: tasks of steps, their checks, their executors, and their planner."""
