"""What is wrong is told on one line each, whatever the name."""

from errno import EFBIG, EILSEQ, EROFS

from holdfast.doors.mount.sync.state import UNDONE_MAX, Notice, SyncNotices


def test_each_is_a_line_of_errno_path_and_what_to_do() -> None:
    notices = SyncNotices()
    notices.put("/b.md", Notice.of(EFBIG))
    notices.put("/a\nb\udcff", Notice.of(EILSEQ))

    assert notices.text().decode().splitlines() == [
        "EILSEQ /a\\nb\\udcff is not UTF-8 text, or holds a zero byte: save it as text",
        "EFBIG /b.md is larger than 102,400 bytes: split it into several files",
    ]


def test_what_is_said_again_is_no_news() -> None:
    notices = SyncNotices()

    assert notices.put("/a", Notice.of(EFBIG))
    assert not notices.put("/a", Notice.of(EFBIG))
    assert notices.put("/a", Notice.of(EILSEQ))
    assert len(notices) == 1


def test_what_is_left_out_is_counted() -> None:
    notices = SyncNotices()
    for number in range(5):
        notices.put(f"/{number}", Notice.of(EFBIG))

    assert notices.lines(3)[3:] == ["… and 2 more"]


def test_what_is_over_is_told_of_until_much_else_was() -> None:
    notices = SyncNotices()
    assert notices.keep("/first", EROFS)
    assert not notices.keep("/first", EROFS)
    notices.clear("/first")
    assert len(notices.lines()) == 1

    for number in range(UNDONE_MAX):
        notices.keep(f"/{number}", EROFS)

    assert len(notices) == UNDONE_MAX
    assert "/first" not in notices.text().decode()


def test_nothing_wrong_is_no_text() -> None:
    notices = SyncNotices()
    notices.put("/a", Notice.of(EFBIG))
    notices.clear("/a")

    assert notices.text() == b""
