"""What is counted and told of everything that happens."""

import os
from errno import EIO, ESTALE

from doors.mount.core.driven import Driven, refused
from doors.mount.core.trouble import gone

from holdfast.memories.stores.edits import Save

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def test_everything_is_counted(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.put("/notes/b.md", b"x")
    mount.put("/notes/b.md", b"y")
    with refused():
        mount.put("/notes/c.md", b"\xff")
    with refused():
        mount.put("/notes/d.md", b"cut \xc3")
    told = mount.told()

    assert (told["saves"], told["memories"], told["cap"]) == (2, 2, 10_000)
    assert told["refused"] == {"EILSEQ": 1}
    assert told["failed"] == {"EILSEQ": 1}
    assert told["spooled"] == 1


def test_what_is_refused_failed_and_spooled_is_told_once_each(mount: Driven) -> None:
    mount.events.clear()
    with refused():
        mount.put("/notes/c.md", b"\xff")
    assert mount.event_types() == ["mount.refused"]
    with refused():
        mount.put("/notes/d.md", b"cut \xc3")

    assert mount.event_types().count("mount.refused") == 1
    assert mount.event_types().count("mount.failed") == 1
    assert mount.event_types().count("mount.spooled") == 1


def test_an_event_says_which_store_and_errno(mount: Driven) -> None:
    mount.events.clear()
    with refused():
        mount.put("/notes/d.md", b"cut \xc3")
    event = next(each for each in mount.events if each.type == "mount.failed")

    assert mount.id() in event.ids.values()
    assert event.data["errno"] == "EILSEQ"
    assert event.workspace == mount.hf.workspace


def test_a_conflict_is_counted_and_told(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    mount.changed(memory, content="else\n")
    with refused(ESTALE):
        file.close()

    assert mount.told()["conflicts"] == 1
    assert "mount.conflict" in mount.event_types()


def test_starting_and_stopping_are_told(mount: Driven) -> None:
    mount.stop()

    assert mount.event_types()[0] == "mount.started"
    assert mount.event_types()[-1] == "mount.stopped"


def test_unsaved_and_retrying_files_are_counted(mount: Driven) -> None:
    mount.open("/notes/a.md", NEW).write(b"x")
    assert (mount.told()["unsaved"], mount.told()["retrying"]) == (1, 0)

    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/b.md", b"x")
    assert (mount.told()["unsaved"], mount.told()["retrying"]) == (2, 1)
    assert mount.told()["failed"] == {"EIO": 1}


def test_a_save_edit_names_what_it_goes_by(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    mount.append("/notes/a.md", b"two\n")
    ((edit,), _) = mount.sources["notes"].applies[-1]

    assert edit == Save(
        path="/a.md",
        content="one\ntwo\n",
        memory_id=memory.id,
        base_sha256=memory.content_sha256,
        appended="two\n",
    )
