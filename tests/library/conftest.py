"""A handle on a server that says what the test wants it to say."""

import threading
from collections.abc import Iterator

import pytest
from library.scripted import Scripted

from holdfast.library.remote import RemoteHoldfast
from holdfast.library.wire_client import Connections, WireClient


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
