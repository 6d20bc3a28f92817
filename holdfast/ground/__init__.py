"""Layer 0: values, errors and rules of every layer. Imports nothing of ours."""
