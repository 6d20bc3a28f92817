"""Recall of long-term memory: analysis, postings, scoring and ranking."""
