"""Failed saves: their errors, their bytes on disk, and the next mount."""

import logging
import os
import re
import stat
from collections.abc import Callable
from errno import EACCES, EEXIST, EIO, ENOENT, ENOSPC, EROFS, ESTALE

import pytest
from doors.mount.core.driven import Drive, Driven, refused
from doors.mount.core.trouble import gone, spooled_files, unsure

from holdfast.ground import errors
from holdfast.ground.ids import KINDS
from holdfast.ground.text import sha256_hex

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND

Failure = Callable[[], Exception]


def full() -> Exception:
    return errors.Unavailable("The disk is full.", reason="full")


def limited() -> Exception:
    """Return an error that means: later."""
    return errors.Unavailable("Too many requests.", reason="overloaded", retry_after=1.0)


def stranger() -> Exception:
    return errors.NotAuthenticated()


PASSING: dict[str, tuple[Failure, int]] = {
    "lost": (gone, EIO),
    "timeout": (unsure, EIO),
    "overloaded": (limited, EIO),
    "disk full": (full, ENOSPC),
    "key revoked": (stranger, EACCES),
    "a bug": (lambda: RuntimeError("a bug"), EIO),
}
FOR_GOOD: dict[str, tuple[Failure, int]] = {
    "read-only": (lambda: errors.NotPermitted("no", needed="write"), EROFS),
    "taken": (lambda: errors.PathTaken("mem_1", "/a"), EEXIST),
    "changed": (lambda: errors.PreconditionFailed("mem_1", expected="", current=""), ESTALE),
    "full store": (lambda: errors.StoreFull("memstore_1", 1), ENOSPC),
}
passing = pytest.mark.parametrize(("failure", "number"), PASSING.values(), ids=PASSING)


# Failures for now


@passing
def test_a_close_that_fails_for_now_says_so_once_the_bytes_are_in_the_spool(
    mount: Driven, failure: Failure, number: int
) -> None:
    mount.sources["notes"].refusing = failure

    with refused(number):
        mount.put("/notes/a.md", b"mine\n")
    assert [left.content for left in mount.spooled()] == [b"mine\n"]
    assert mount.spooled()[0].facts["errno"] == {5: "EIO", 28: "ENOSPC", 13: "EACCES"}[number]


@passing
def test_what_could_not_be_saved_is_read_in_the_mount(
    mount: Driven, failure: Failure, number: int
) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = failure
    with refused(number):
        mount.put("/notes/a.md", b"mine\n")

    assert mount.cat("/notes/a.md") == b"mine\n"
    assert mount.size("/notes/a.md") == 5
    assert mount.kept() == {"/a.md": "old\n"}


@passing
def test_it_is_saved_once_storage_is_back(mount: Driven, failure: Failure, number: int) -> None:
    mount.sources["notes"].refusing = failure
    with refused(number):
        mount.put("/notes/a.md", b"mine\n")
    mount.later.advance(20)
    mount.sources["notes"].heal()

    with mount.made("created"):
        mount.later.advance(5)
    assert mount.kept() == {"/a.md": "mine\n"}
    assert mount.spooled() == []
    assert mount.told()["retrying"] == mount.told()["unsaved"] == 0


def test_it_is_tried_again_after_ever_longer_times(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")

    tried: list[int] = []
    for wait in (0.25, 0.5, 1, 2, 4, 5, 5, 5):
        before = len(mount.sources["notes"].applies)
        mount.later.advance(wait - 0.01)
        assert len(mount.sources["notes"].applies) == before
        mount.later.advance(0.01)
        tried.append(len(mount.sources["notes"].applies) - before)
    assert tried == [1] * 8


def test_it_is_tried_again_under_the_same_edit_id(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    mount.later.advance(10)

    source = mount.sources["notes"]
    assert len(source.edit_ids) > 4
    assert len(set(source.edit_ids)) == 1
    assert len({edits for edits, _ in source.applies}) == 1
    assert re.fullmatch(r"edit_[0-9A-Za-z]{24}", source.edit_ids[0])
    assert mount.spooled()[0].facts["edit_id"] == source.edit_ids[0]


def test_while_it_is_tried_again_the_entry_is_in_the_spool_once(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    mount.later.advance(30)

    assert [left.content for left in mount.spooled()] == [b"mine\n"]


@pytest.mark.parametrize("flags", [NEW, APPEND])
def test_a_save_whose_answer_was_lost_is_done_once(mount: Driven, flags: int) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].losing = unsure
    with mount.made("modified"):
        with refused(EIO):
            mount.program("/notes/a.md", flags, b"mine\n")
        mount.settle()
        mount.sources["notes"].heal()
        mount.later.advance(10)

    expected = "mine\n" if flags == NEW else "old\nmine\n"
    assert mount.kept() == {"/a.md": expected}
    assert mount.cat("/notes/a.md") == expected.encode()
    assert mount.spooled() == []


def test_an_edit_whose_answer_was_lost_is_done_once(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].losing = unsure
    with mount.made("modified"):
        with refused(EIO):
            mount.edit("/notes/a.md", 0, b"OLD")
        mount.settle()
        mount.sources["notes"].heal()
        mount.later.advance(10)

    assert mount.kept() == {"/a.md": "OLD\n"}
    assert mount.spooled() == []


@pytest.mark.parametrize("failure", [gone, unsure])
def test_a_newer_save_takes_the_place_of_one_that_waits(mount: Driven, failure: Failure) -> None:
    mount.sources["notes"].refusing = failure
    for data in (b"one\n", b"two\n", b"three\n"):
        with refused(EIO):
            mount.put("/notes/a.md", data)
    assert mount.spooled()[-1].content == b"three\n"
    mount.sources["notes"].heal()
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "three\n"}
    assert mount.versions()[-1].content == "three\n"
    assert mount.spooled() == []


def test_a_newer_save_of_which_nothing_was_written_is_one_version(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    for data in (b"one\n", b"two\n"):
        with refused(EIO):
            mount.put("/notes/a.md", data)
    assert [left.content for left in mount.spooled()] == [b"two\n"]
    mount.sources["notes"].heal()

    with mount.made("created"):
        mount.later.advance(10)


def test_a_newer_save_that_succeeds_ends_the_trying(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"one\n")
    mount.sources["notes"].heal()
    mount.put("/notes/a.md", b"two\n")

    assert mount.spooled() == []
    with mount.made():
        mount.later.advance(10)
    assert mount.kept() == {"/a.md": "two\n"}


@pytest.mark.parametrize("heard", [True, False])
def test_appends_after_a_lost_answer_are_kept_once_each(mount: Driven, heard: bool) -> None:
    mount.given("/a.md", "one\n")
    source = mount.sources["notes"]
    source.losing = unsure
    with source.lull():
        with refused(EIO):
            mount.append("/notes/a.md", b"two\n")
        if not heard:
            source.heal()
            mount.append("/notes/a.md", b"three\n")
    if heard:
        mount.settle()
        source.heal()
        mount.append("/notes/a.md", b"three\n")
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "one\ntwo\nthree\n"}
    assert mount.spooled() == []


def test_an_edit_after_a_lost_answer_is_no_conflict(mount: Driven) -> None:
    mount.given("/a.md", "one two\n")
    mount.sources["notes"].losing = unsure
    with refused(EIO):
        mount.edit("/notes/a.md", 0, b"ONE")
    mount.sources["notes"].heal()
    mount.edit("/notes/a.md", 4, b"TWO")
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "ONE TWO\n"}


@pytest.mark.parametrize("flags", [NEW, APPEND])
def test_a_save_that_lands_late_does_not_undo_a_newer_one(mount: Driven, flags: int) -> None:
    mount.given("/a.md", "old\n")
    source = mount.sources["notes"]
    source.refusing = unsure
    with refused(EIO):
        mount.program("/notes/a.md", flags, b"one\n")
    source.heal()
    mount.program("/notes/a.md", flags, b"two\n")
    source.land(0)
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "two\n" if flags == NEW else "old\none\ntwo\n"}


def test_a_save_that_lands_late_does_not_bring_back_what_was_removed(mount: Driven) -> None:
    source = mount.sources["notes"]
    source.refusing = unsure
    with refused(EIO):
        mount.put("/notes/a.md", b"one\n")
    source.heal()
    mount.core.unlink("/notes/a.md")
    source.land(0)
    mount.later.advance(10)

    assert mount.kept() == {}


FAILING: dict[str, Callable[[Driven], None]] = {
    "unlink": lambda m: m.core.unlink("/notes/a.md"),
    "rename": lambda m: m.core.rename("/notes/a.md", "/notes/c.md"),
    "rename over": lambda m: m.core.rename("/notes/a.md", "/notes/b.md"),
    "rename of a directory": lambda m: m.core.rename("/notes/d", "/notes/e"),
}
THEN: dict[str, tuple[Callable[[Driven], None], dict[str, str]]] = {
    "nothing": (lambda _: None, {}),
    "append": (lambda m: m.append("/notes/a.md", b"more\n"), {"/a.md": "a\nmore\n"}),
    "edit": (lambda m: m.edit("/notes/a.md", 0, b"A"), {"/a.md": "A\n"}),
    "write": (lambda m: m.put("/notes/a.md", b"new\n"), {"/a.md": "new\n"}),
    "write to the target": (lambda m: m.append("/notes/b.md", b"more\n"), {"/b.md": "b\nmore\n"}),
    "write below": (lambda m: m.append("/notes/d/a.md", b"more\n"), {"/d/a.md": "d\nmore\n"}),
    "backup": (
        lambda m: m.core.rename("/notes/a.md", "/notes/a.md.bak"),
        {"/a.md": "", "/a.md.bak": "a\n"},
    ),
    "rename": (
        lambda m: m.core.rename("/notes/a.md", "/notes/f.md"),
        {"/a.md": "", "/f.md": "a\n"},
    ),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
@pytest.mark.parametrize(("then", "changes"), THEN.values(), ids=THEN)
def test_what_failed_and_was_not_done_is_never_done_later(
    mount: Driven,
    failing: Callable[[Driven], None],
    then: Callable[[Driven], None],
    changes: dict[str, str],
) -> None:
    for path, content in (("/a.md", "a\n"), ("/b.md", "b\n"), ("/d/a.md", "d\n")):
        mount.given(path, content)
        mount.cat(f"/notes{path}")
    mount.sources["notes"].refusing = unsure
    with refused(EIO):
        failing(mount)
    mount.sources["notes"].heal()
    then(mount)
    mount.later.advance(20)
    mount.settle()

    expected = {"/a.md": "a\n", "/b.md": "b\n", "/d/a.md": "d\n", **changes}
    assert mount.kept() == {path: content for path, content in expected.items() if content}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_what_was_done_though_its_answer_was_lost_is_seen(
    mount: Driven, failing: Callable[[Driven], None]
) -> None:
    for path in ("/a.md", "/b.md", "/d/a.md"):
        mount.given(path, path)
    mount.sources["notes"].losing = unsure
    with refused(EIO):
        failing(mount)
    mount.sources["notes"].heal()
    mount.settle()

    files = [path for path in mount.find("/notes") if not path.endswith("/")]
    assert files == [f"/notes{path}" for path in mount.kept()]
    assert [mount.cat(path).decode() for path in files] == [*mount.kept().values()]


def test_an_edit_that_waits_and_is_overtaken_is_spooled(mount: Driven) -> None:
    memory = mount.given("/a.md", "one two\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.edit("/notes/a.md", 0, b"ONE")
    mount.changed(memory, content="else\n")
    mount.sources["notes"].heal()
    with mount.made():
        mount.later.advance(10)

    assert [left.content for left in mount.spooled()] == [b"ONE two\n"]
    assert mount.spooled()[0].facts["errno"] == "ESTALE"
    assert mount.cat("/notes/a.md") == b"else\n"
    assert mount.told()["retrying"] == 0


def test_an_append_that_waits_goes_after_what_came_meanwhile(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.append("/notes/a.md", b"mine\n")
    mount.changed(memory, content="one\ntwo\n")
    mount.sources["notes"].heal()
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "one\ntwo\nmine\n"}


def test_what_waits_can_be_renamed(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    mount.sources["notes"].heal()
    mount.core.rename("/notes/a.md", "/notes/b.md")
    mount.later.advance(10)

    assert mount.kept() == {"/b.md": "mine\n"}
    assert mount.at("/b.md").id == memory.id
    assert mount.spooled() == []


@pytest.mark.parametrize("lost", [True, False])
def test_what_waits_can_be_removed(mount: Driven, lost: bool) -> None:
    source = mount.sources["notes"]
    if lost:
        source.losing = unsure
    else:
        source.refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    source.heal()
    mount.core.unlink("/notes/a.md")
    mount.later.advance(10)
    mount.settle()

    assert mount.kept() == {}
    assert mount.spooled() == []
    assert mount.ls("/notes") == []


def test_files_that_wait_do_not_hold_up_others(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"a")
    mount.put("/other/b.md", b"b")

    assert mount.kept("other") == {"/b.md": "b"}


def test_several_files_that_wait_are_all_saved(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    for name in "abc":
        with refused(EIO):
            mount.put(f"/notes/{name}.md", name.encode())
    assert mount.told()["retrying"] == 3
    mount.sources["notes"].heal()
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "a", "/b.md": "b", "/c.md": "c"}


def test_what_fails_at_release_is_spooled_and_tried_again(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    mount.sources["notes"].refusing = gone
    file.flush()
    file.release()

    assert [left.facts["path"] for left in mount.spooled()] == ["/a.md"]
    mount.sources["notes"].heal()
    mount.later.advance(10)
    assert mount.kept() == {"/a.md": ""}


def test_fsync_says_what_failed_and_close_says_it_again(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    file = mount.open("/notes/a.md", NEW)
    file.write(b"x")

    with refused(EIO):
        file.fsync()
    file.write(b"y")
    with refused(EIO):
        file.close()
    assert [left.content for left in mount.spooled()] == [b"xy"]


def test_unmounting_saves_what_waits(mount: Driven) -> None:
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    mount.sources["notes"].heal()

    assert mount.stop() == 0
    assert mount.kept() == {"/a.md": "mine\n"}
    assert mount.spooled() == []


def test_unmounting_saves_what_is_open(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.open("/notes/a.md", NEW).write(b"mine\n")
    mount.open("/notes/b.md", NEW)

    assert mount.stop() == 0
    assert mount.kept() == {"/a.md": "mine\n", "/b.md": ""}


def test_unmounting_spools_what_cannot_be_saved_and_says_how_many(mount: Driven) -> None:
    mount.open("/notes/a.md", NEW).write(b"a")
    mount.open("/notes/b.md", NEW).write(b"b")
    mount.put("/notes/c.tmp", b"c")
    mount.sources["notes"].away()

    assert mount.stop() == 3
    assert sorted(left.content for left in mount.spooled()) == [b"a", b"b", b"c"]


# Failures for good


@pytest.mark.parametrize(("failure", "number"), FOR_GOOD.values(), ids=FOR_GOOD)
def test_what_fails_for_good_is_spooled_and_the_old_head_shows_again(
    mount: Driven, failure: Failure, number: int
) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = failure
    with refused(number):
        mount.put("/notes/a.md", b"mine\n")
    mount.sources["notes"].heal()

    assert [left.content for left in mount.spooled()] == [b"mine\n"]
    assert mount.cat("/notes/a.md") == b"old\n"
    with mount.made():
        mount.later.advance(60)
    assert len(mount.spooled()) == 1


@pytest.mark.parametrize(("failure", "number"), FOR_GOOD.values(), ids=FOR_GOOD)
def test_a_new_file_that_fails_for_good_disappears(
    mount: Driven, failure: Failure, number: int
) -> None:
    mount.sources["notes"].refusing = failure
    with refused(number):
        mount.put("/notes/a.md", b"mine\n")

    assert mount.ls("/notes") == []
    assert ("/notes", "a.md") in mount.kernel.names


def test_what_is_nobodys_is_in_the_log_with_its_traceback(
    mount: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    mount.sources["notes"].refusing = lambda: RuntimeError("a bug")
    with caplog.at_level(logging.ERROR), refused(EIO):
        mount.put("/notes/a.md", b"mine\n")

    assert any(record.exc_info for record in caplog.records)


def test_no_content_is_in_the_log_or_the_events(
    mount: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    memory = mount.given("/secret-name.md", "old\n")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.edit("/notes/secret-name.md", 0, b"MARKER")
    mount.changed(memory, content="else\n")
    mount.sources["notes"].heal()
    mount.later.advance(10)

    said = caplog.text + repr(mount.events)
    assert "MARKER" not in said
    assert "secret-name" not in repr(mount.events)


READING: dict[str, tuple[Failure, int]] = {
    "a memory gone": (lambda: errors.NotFound(KINDS["mem"], "mem_1"), ENOENT),
    "the store gone": (lambda: errors.NotFound(KINDS["memstore"], "memstore_1"), ESTALE),
    "key revoked": (stranger, EACCES),
    "lost": (gone, EIO),
    "a bug": (lambda: RuntimeError("a bug"), EIO),
}


@pytest.mark.parametrize(("failure", "number"), READING.values(), ids=READING)
def test_what_fails_at_open(mount: Driven, failure: Failure, number: int) -> None:
    mount.given("/a.md")
    mount.sources["notes"].unread = failure

    with refused(number):
        mount.open("/notes/a.md")


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
