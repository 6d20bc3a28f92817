"""What an adapter has acknowledged is there after its process was killed."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

WAIT = 120
WRITES = {
    # The code that writes "I prefer tabs." as the user ada, and the namespace that has it.
    "google_adk": (
        "adk:travel",
        """
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types
from holdfast.doors.adapters.google_adk import HoldfastMemoryService
content = types.Content(role="user", parts=[types.Part(text="I prefer tabs.")])
event = Event(id="e1", author="user", content=content)
session = Session(id="s1", app_name="travel", user_id="ada", events=[event])
write = HoldfastMemoryService(hf).add_session_to_memory(session)
""",
    ),
    "llama_index": (
        "chat",
        """
from llama_index.core.llms import ChatMessage
from holdfast.doors.adapters.llama_index import HoldfastMemoryBlock
message = ChatMessage(role="user", content="I prefer tabs.")
write = HoldfastMemoryBlock(hf=hf, user="ada").aput([message], session_id="s1")
""",
    ),
    "strands": (
        "chat",
        """
from holdfast.doors.adapters.strands import HoldfastMemoryStore
message = {"role": "user", "content": [{"text": "I prefer tabs."}]}
write = HoldfastMemoryStore(hf, user="ada").add_messages([message])
""",
    ),
}
KILLED = """
import asyncio, os, signal, sys
import holdfast
hf = holdfast.open(sys.argv[1])
{write}
async def work():
    await write
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(work())
"""


@pytest.mark.parametrize("name", WRITES)
def test_what_was_remembered_is_there_after_the_process_was_killed(
    name: str, tmp_path: Path
) -> None:
    namespace, write = WRITES[name]

    ended = subprocess.run(
        [sys.executable, "-c", KILLED.format(write=write), str(tmp_path / "h.db")],
        check=False,
        timeout=WAIT,
    )

    assert ended.returncode == -9
    with holdfast.open(tmp_path / "h.db") as hf:
        memory = hf.longterm("ada", namespace=namespace, enabled=True)
        assert memory is not None
        assert [each.text for each in memory.recall("Tabs or spaces?")] == ["I prefer tabs."]
