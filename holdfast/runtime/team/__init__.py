"""Teams: a board of tasks, a bus of messages, and agents that take turns."""
