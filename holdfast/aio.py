"""The library for an event loop.

`hf = await holdfast.aio.open(…)` opens it; its methods are awaited.
`hf.durable(…)` and `hf.longterm_data(…)` do no I/O and need no `await`:
`await hf.durable("agent_7").set(…)`.
"""

from holdfast.library.aio import AsyncHoldfast as AsyncHoldfast
from holdfast.library.aio import open as open
from holdfast.library.async_bridge import AsyncPage as AsyncPage
