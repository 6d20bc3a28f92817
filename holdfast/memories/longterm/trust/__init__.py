"""Tiers, evidence, canaries, and rows held for a person."""
