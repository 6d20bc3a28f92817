"""What is kept on disk of what could not be saved, and what if that disk is full."""

import os
import re
import stat
from errno import EIO, ENOSPC

from doors.mount.core.driven import Driven, refused
from doors.mount.core.trouble import gone, spooled_files

from holdfast.ground.text import sha256_hex

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def test_an_entry_tells_what_it_is(mount: Driven) -> None:
    memory = mount.given("/d/a.md", "old\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.edit("/notes/d/a.md", 0, b"OLD")

    (left,) = mount.spooled()
    facts = dict(left.facts)
    assert facts.pop("message")
    assert facts == {
        "type": "spooled",
        "store_id": mount.id(),
        "memory_id": memory.id,
        "path": "/d/a.md",
        "base_sha256": memory.content_sha256,
        "kind": "save",
        "errno": "EIO",
        "edit_id": mount.sources["notes"].edit_ids[0],
        "at": mount.clock.now().isoformat(timespec="microseconds")[:-6] + "Z",
        "session_id": None,
        "content_sha256": sha256_hex(b"OLD\n"),
    }


def test_an_append_is_spooled_as_what_is_appended(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.append("/notes/a.md", b"mine\n")

    (left,) = mount.spooled()
    assert (left.content, left.facts["kind"]) == (b"mine\n", "append")


def test_an_entry_says_its_session(mount: Driven) -> None:
    mount = mount.again(session_id="sesn_1")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"x")

    assert mount.spooled()[0].facts["session_id"] == "sesn_1"


def test_an_entry_is_for_its_owner_alone_and_named_by_time_errno_and_file(
    mount: Driven,
) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a b.md", b"x")

    ((content, facts),) = spooled_files(mount.root, mount.id())
    assert re.fullmatch(r"[0-9TZ:.+-]+-EIO-a b\.md", content.name)
    assert facts.name == content.name + ".json"
    assert stat.S_IMODE(content.stat().st_mode) == stat.S_IMODE(facts.stat().st_mode) == 0o600
    assert stat.S_IMODE(content.parent.stat().st_mode) == 0o700


def test_an_entry_of_a_long_name_fits(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/" + "\u00e9" * 127, b"x")

    assert mount.spooled()[0].facts["path"] == "/" + "\u00e9" * 127


def test_when_the_spool_is_full_the_bytes_stay_in_memory(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = gone
    mount.spool.full = True
    with refused():
        mount.put("/notes/a.md", b"mine\n")

    assert mount.cat("/notes/a.md") == b"mine\n"
    assert mount.state() == "unsafe"


def test_what_could_not_be_spooled_is_saved_once_storage_is_back(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    mount.spool.full = True
    with refused():
        mount.put("/notes/a.md", b"mine\n")
    mount.sources["notes"].heal()
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "mine\n"}
    assert mount.state() == "ok"


def test_what_could_not_be_spooled_is_spooled_once_there_is_room(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    mount.spool.full = True
    with refused():
        mount.put("/notes/a.md", b"mine\n")
    mount.spool.full = False
    mount.later.advance(10)

    assert [left.content for left in mount.spooled()] == [b"mine\n"]
    assert mount.state() != "unsafe"


def test_a_full_spool_is_one_event(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    mount.spool.full = True
    with refused():
        mount.put("/notes/a.md", b"mine\n")
    before = len(mount.events)
    mount.later.advance(100)

    assert before >= 1
    assert len(mount.events) == before


def test_with_a_full_spool_no_more_than_64_mebibytes_are_kept_unsaved(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    mount.spool.full = True
    size = 102_400
    for number in range(64 * 1024 * 1024 // size):
        with refused():
            mount.put(f"/notes/{number}.md", b"x" * size)
    file = mount.open("/notes/more.md", NEW)

    with refused(ENOSPC):
        file.write(b"x" * size)
