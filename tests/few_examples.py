"""Fewer examples than the profile has, for tests that run a whole team or plan for each."""

import os

from hypothesis import settings

FEW = settings(max_examples=settings().max_examples if "HOLDFAST_EXAMPLES" in os.environ else 10)
