"""Memory for AI agents: five memories on one engine, behind many doors."""

from msgspec import UNSET as UNSET

from holdfast.library.open import open as open
