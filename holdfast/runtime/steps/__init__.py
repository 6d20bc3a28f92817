"""Steps of a task: an agent works on one instruction until it has one result."""
