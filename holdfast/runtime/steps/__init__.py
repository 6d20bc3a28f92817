"""One step of a task: an agent at work on one instruction, until it gives one result."""
