"""Care of a whole database: backup, restore, verify, doctor."""
