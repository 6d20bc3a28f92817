"""Evaluate recall on conversations with questions and evidence."""
