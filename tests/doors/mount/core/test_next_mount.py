"""What a mount finds that another left behind."""

import os
from collections.abc import Callable
from errno import EIO

import pytest
from doors.mount.core.driven import Drive, Driven, refused
from doors.mount.core.trouble import gone, unsure

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

Failure = Callable[[], Exception]

TROUBLES: dict[str, tuple[Failure | None, Failure | None]] = {
    "nothing was done": (gone, None),
    "nothing was done, which is not known": (unsure, None),
    "it was done, which is not known": (None, unsure),
}
"""What a save is refused with, or its answer is lost with."""


def test_the_next_mount_saves_what_was_left_for_now(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    with refused(EIO):
        mount.put("/notes/b.md", b"new\n")
    mount.crash()
    heir = mount.again()

    assert heir.kept() == {"/a.md": "mine\n", "/b.md": "new\n"}
    assert heir.at("/a.md").id == memory.id
    assert heir.spooled() == []
    assert heir.cat("/notes/a.md") == b"mine\n"
    assert "mount.recovered" in heir.event_types()


@pytest.mark.parametrize("lost", [True, False])
def test_the_next_mount_appends_what_was_left_whatever_came_meanwhile(
    mount: Driven, lost: bool
) -> None:
    memory = mount.given("/a.md", "one\n")
    source = mount.sources["notes"]
    source.losing, source.refusing = (unsure, None) if lost else (None, gone)
    with refused(EIO):
        mount.append("/notes/a.md", b"mine\n")
    mount.crash()
    now = mount.at("/a.md").content or ""
    mount.hf.memory_stores.memories.update(
        memory.id, memory_store_id=mount.id(), content=now + "two\n"
    )
    heir = mount.again()

    expected = "one\nmine\ntwo\n" if lost else "one\ntwo\nmine\n"
    assert heir.kept() == {"/a.md": expected}
    assert heir.spooled() == []


@pytest.mark.parametrize("whole", [True, False])
def test_what_the_next_mount_finds_overtaken_stays(mount: Driven, whole: bool) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        if whole:
            mount.put("/notes/a.md", b"mine\n")
        else:
            mount.edit("/notes/a.md", 0, b"OLD")
    mount.crash()
    mount.hf.memory_stores.memories.update(memory.id, memory_store_id=mount.id(), content="else\n")
    heir = mount.again()

    assert heir.kept() == {"/a.md": "else\n"}
    assert [left.content for left in heir.spooled()] == [b"mine\n" if whole else b"OLD\n"]


@pytest.mark.parametrize("trouble", [*TROUBLES.values()], ids=TROUBLES)
@pytest.mark.parametrize("second", ["append", "edit", "whole"])
@pytest.mark.parametrize("first", ["new", "append", "edit", "whole"])
def test_the_next_mount_saves_each_of_several_that_were_left(
    mount: Driven, first: str, second: str, trouble: tuple[Failure | None, Failure | None]
) -> None:
    if first != "new":
        mount.given("/a.md", "old\n")
    source = mount.sources["notes"]
    source.refusing, source.losing = trouble
    expected = b"old\n"
    for how, word in ((first, b"one\n"), (second, b"two\n")):
        with refused(EIO):
            if how == "append":
                mount.append("/notes/a.md", word)
            elif how == "edit":
                mount.edit("/notes/a.md", 0, word)
            else:
                mount.put("/notes/a.md", word)
        whole = how in ("new", "whole")
        expected = word if whole else expected + word if how == "append" else word + expected[4:]
    mount.crash()
    heir = mount.again()
    heir.later.advance(20)

    assert heir.kept() == {"/a.md": expected.decode()}
    assert heir.spooled() == []


def test_what_failed_for_good_stays_for_the_user(mount: Driven) -> None:
    with refused():
        mount.put("/notes/a.md", b"cut \xc3")
    mount.crash()
    heir = mount.again()

    assert heir.kept() == {}
    assert [left.content for left in heir.spooled()] == [b"cut \xc3"]


def test_the_next_mount_promotes_a_transient_file(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.crash()
    heir = mount.again()
    heir.later.advance(10)

    assert heir.kept() == {"/a.tmp": "x"}
    assert heir.spooled() == []


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("old", "new"), [("/notes/d", "/notes/e"), ("/notes/d/a.tmp", "/notes/d/b.tmp")]
)
def test_the_next_mount_promotes_a_transient_file_under_its_last_name(
    mount: Driven, old: str, new: str, opened: bool
) -> None:
    mount.core.mkdir("/notes/d")
    mount.put("/notes/d/a.tmp", b"x")
    if opened:
        mount.open("/notes/d/a.tmp", os.O_RDWR)
    mount.core.rename(old, new)
    after = "/e/a.tmp" if new == "/notes/e" else "/d/b.tmp"
    assert [left.facts["path"] for left in mount.spooled()] == [after]
    mount.crash()
    heir = mount.again()
    heir.later.advance(10)

    assert heir.kept() == {after: "x"}


def test_the_next_mount_saves_what_was_left_under_its_last_name(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/d/a.md", b"x")
    try:
        mount.core.rename("/notes/d", "/notes/e")
    except OSError as error:
        after = "/d/a.md" if error.errno == EIO else ""
    else:
        after = "/e/a.md"
    mount.crash()

    assert mount.again().kept() == {after: "x"}


def test_what_was_not_closed_is_lost_in_a_crash_and_nothing_else(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.open("/notes/a.md", NEW).write(b"mine\n")
    mount.put("/notes/b.md", b"b")
    mount.crash()
    heir = mount.again()

    assert heir.kept() == {"/a.md": "old\n", "/b.md": "b"}
    assert heir.cat("/notes/a.md") == b"old\n"


def test_two_mounts_never_take_the_same_entry(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.append("/notes/a.md", b"mine\n")
    second = mount.again()
    assert second.kept() == {"/a.md": "one\n"}

    mount.sources["notes"].heal()
    mount.later.advance(10)
    assert mount.kept() == {"/a.md": "one\nmine\n"}


def test_what_cannot_be_saved_at_the_start_is_tried_again(drive: Drive) -> None:
    mount = drive().start()
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    mount.crash()
    heir = Driven(mount.hf, mount.clock, mount.root, mount.stores)
    mount.heirs.append(heir)
    heir.sources["notes"].refusing = gone
    heir.start()
    assert [left.content for left in heir.spooled()] == [b"mine\n"]
    heir.sources["notes"].heal()
    heir.later.advance(10)

    assert heir.kept() == {"/a.md": "mine\n"}
    assert heir.spooled() == []
