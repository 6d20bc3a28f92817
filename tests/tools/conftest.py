"""What the tool `memory` is tried on."""

from targets import hf as hf
from targets import postgres as postgres
