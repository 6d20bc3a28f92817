"""Durable entries as Markdown files."""
