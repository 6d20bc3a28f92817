"""Runs of executors: their events, record, versions, questions and workers."""
