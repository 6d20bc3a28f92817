"""Consolidation: jobs that propose changes to a memory, which a person accepts."""
