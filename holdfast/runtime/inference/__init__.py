"""Calls of an agent: requests, replies, tool calls, results."""
