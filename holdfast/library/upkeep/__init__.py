"""Maintain a whole database: backup, restore, verify, doctor."""
