"""Durable memory: what one agent knows between runs, by key, in categories with lifetimes."""
