"""A handle on a server that says what the test wants it to say."""

import threading
from collections.abc import Iterator

import pytest
from library.scripted import Scripted
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.library.remote.client import Connections, WireClient
from holdfast.library.remote.handle import RemoteHoldfast


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with Scripted() as scripted:
        thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def hf(scripted: Scripted, pauses: list[float]) -> Iterator[RemoteHoldfast]:
    connections = Connections(scripted.url)
    client = WireClient(connections, api_key="hf_1", workspace="default", pause=pauses.append)
    with RemoteHoldfast(client, on_close=connections.close) as hf:
        yield hf


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Collect spans as an application does; the provider of a process can be set but once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter
