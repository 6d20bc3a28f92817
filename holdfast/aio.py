"""The library for an event loop: `hf = await holdfast.aio.open(…)`, and await its methods."""

from holdfast.library.aio import AsyncHoldfast as AsyncHoldfast
from holdfast.library.aio import open as open
from holdfast.library.crossing import AsyncPage as AsyncPage
