"""The pages of the console, one module a section of its menu."""
