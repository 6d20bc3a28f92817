"""Buffers of unsaved bytes, and the cache of contents."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from errno import EFBIG, EILSEQ
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.doors.mount.filesystem.nodes import Buffer, BufferSnapshot, content_fault
from holdfast.doors.mount.storage.source import ENTRY_BYTES, Contents

LIMIT = 102_400
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_TEXT = [b"\xff", b"\xc0\x80", b"a\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82A"]


def buffer(base: bytes = b"", *, zeros: bool = False) -> Buffer:
    """Return what is written to a memory of content *base*."""
    return Buffer(base, NOW, memory_id="mem_1", base_sha256="base", zeros=zeros)


def wrote(*pieces: tuple[int, bytes], base: bytes = b"base\n") -> BufferSnapshot:
    """Return the content once *pieces*, each at its place, were written onto *base*."""
    written = buffer(base)
    for offset, data in pieces:
        written.write(data, offset, NOW)
    return written.snapshot()


@pytest.mark.parametrize("content", [b"", b"a\n", "\u00e9\U0001f600".encode(), b"\xef\xbb\xbfa"])
def test_text_is_no_fault(content: bytes) -> None:
    assert content_fault(content) == 0


@pytest.mark.parametrize("content", [*NOT_TEXT, b"a\0b", b"cut \xc3"])
def test_what_is_no_text_is_a_fault(content: bytes) -> None:
    assert content_fault(content) == EILSEQ


def test_content_is_limited_in_bytes() -> None:
    assert content_fault("\u00e9".encode() * (LIMIT // 2)) == 0
    assert content_fault("\u00e9".encode() * (LIMIT // 2) + b"x") == EFBIG


def test_zero_bytes_may_stay_where_they_are() -> None:
    assert content_fault(b"a\0b", zeros=True) == 0
    assert buffer(b"a\0b", zeros=True).fault(b"\0", 3) == 0


@pytest.mark.parametrize("data", NOT_TEXT)
def test_what_can_never_be_text_is_a_fault_at_the_write(data: bytes) -> None:
    assert buffer().fault(data, 0) == EILSEQ
    assert buffer(b"abc").fault(data, 3) == EILSEQ


def test_a_character_that_does_not_go_on_is_a_fault_at_the_next_write() -> None:
    written = buffer()
    assert written.fault(b"caf\xc3", 0) == 0
    written.write(b"caf\xc3", 0, NOW)

    assert written.fault(b"\xa9", 4) == 0
    assert written.fault(b"e", 4) == EILSEQ
    assert written.fault(b"\xff", 4) == EILSEQ


@given(st.text(), st.lists(st.integers(0, 40)))
def test_text_in_pieces_is_no_fault_however_it_is_cut(text: str, cuts: list[int]) -> None:
    content = text.replace("\0", "").encode()
    written = buffer()
    ends = sorted({min(cut, len(content)) for cut in cuts} | {len(content)})
    for start, end in zip([0, *ends], ends, strict=False):
        assert written.fault(content[start:end], start) == 0
        written.write(content[start:end], start, NOW)

    assert bytes(written.data) == content


@given(st.text(min_size=1), st.integers(1, 9), st.randoms(use_true_random=False))
def test_pages_of_text_are_no_fault_in_whatever_order_they_come(
    text: str, page: int, random: Random
) -> None:
    content = text.replace("\0", "x").encode()
    written = buffer()
    written.truncate(len(content), NOW)
    starts = list(range(0, len(content), page))
    random.shuffle(starts)
    for start in starts:
        assert written.fault(content[start : start + page], start) == 0
        written.write(content[start : start + page], start, NOW)

    assert bytes(written.data) == content


@given(st.lists(st.tuples(st.integers(0, 30), st.binary(min_size=1, max_size=9))))
def test_writes_land_where_they_are_told(pieces: list[tuple[int, bytes]]) -> None:
    written, wanted = buffer(), bytearray()
    for offset, data in pieces:
        written.write(data, offset, NOW)
        wanted.extend(bytes(max(0, offset - len(wanted))))
        wanted[offset : offset + len(data)] = data

    assert written.data == wanted


def test_bytes_at_the_end_are_an_append() -> None:
    assert wrote((5, b"one\n"), (9, b"two\n")).appended == b"one\ntwo\n"


def test_rewriting_what_was_appended_is_still_an_append() -> None:
    assert wrote((5, b"one\n"), (5, b"two\n")).appended == b"two\n"


@pytest.mark.parametrize("piece", [(0, b"B"), (4, b"\n"), (4, b"long\n")])
def test_a_byte_of_the_base_makes_it_an_edit(piece: tuple[int, bytes]) -> None:
    snapshot = wrote((5, b"end\n"), piece)

    assert snapshot.appended is None
    assert not snapshot.replaced


def test_cutting_into_the_base_is_an_edit_and_cutting_an_append_is_none() -> None:
    cut, shorter = buffer(b"base\n"), buffer(b"base\n")
    cut.truncate(3, NOW)
    shorter.write(b"end\n", 5, NOW)
    shorter.truncate(8, NOW)

    assert cut.snapshot().appended is None
    assert shorter.snapshot().appended == b"end"


def test_emptying_is_a_replacement_whatever_comes_after() -> None:
    emptied = buffer(b"base\n")
    emptied.truncate(0, NOW)
    emptied.write(b"base\nand more\n", 0, NOW)

    assert emptied.snapshot().replaced


def test_a_new_file_replaces_nothing() -> None:
    new = Buffer(b"", NOW)
    new.write(b"a", 0, NOW)

    assert new.snapshot().replaced


def test_what_is_written_after_a_freeze_is_the_next_save() -> None:
    written = buffer(b"base\n")
    written.write(b"one\n", 5, NOW)
    written.snapshot()
    assert not written.unsaved

    written.write(b"two\n", 9, NOW)
    assert written.snapshot().appended == b"two\n"


def test_what_was_not_saved_is_taken_back() -> None:
    written = buffer(b"base\n")
    written.write(b"one\n", 5, NOW)
    snapshot = written.snapshot()
    written.write(b"two\n", 9, NOW)
    written.undo_snapshot(snapshot)

    assert written.unsaved
    assert written.snapshot().appended == b"one\ntwo\n"


def test_an_append_moves_to_a_new_base() -> None:
    written = buffer(b"base\n")
    written.write(b"mine\n", 5, NOW)
    written.rebase(b"base\ntheirs\n", memory_id="mem_1", base_sha256="new")

    snapshot = written.snapshot()
    assert (snapshot.content, snapshot.appended) == (b"base\ntheirs\nmine\n", b"mine\n")
    assert snapshot.base_sha256 == "new"


def test_two_that_follow_are_one_on_the_base_of_the_first() -> None:
    written = buffer(b"base\n")
    written.write(b"one\n", 5, NOW)
    first = written.snapshot()
    written.write(b"two\n", 9, NOW)

    assert written.snapshot().on(first).appended == b"one\ntwo\n"


def test_what_was_frozen_comes_back() -> None:
    written = buffer(b"base\n")
    written.write(b"one\n", 5, NOW)
    snapshot = written.snapshot()
    written.write(b"\xff", 0, NOW)
    written.restore(snapshot, unsaved=True)

    assert written.snapshot() == snapshot


def test_what_was_put_is_there() -> None:
    contents = Contents(1_000)
    contents.put("aa", b"tabs")

    assert contents.get("aa") == b"tabs"
    assert contents.get("bb") is None


def test_an_empty_content_is_one_too() -> None:
    contents = Contents(1_000)
    contents.put("aa", b"")

    assert contents.get("aa") == b""


def test_what_was_used_longest_ago_goes_first() -> None:
    contents = Contents(10 + 2 * ENTRY_BYTES)
    contents.put("aa", b"12345")
    contents.put("bb", b"12345")
    contents.get("aa")
    contents.put("cc", b"1")

    assert [contents.get(key) for key in ("aa", "bb", "cc")] == [b"12345", None, b"1"]


def test_the_same_content_again_counts_once_and_is_used_last() -> None:
    contents = Contents(10 + 2 * ENTRY_BYTES)
    contents.put("aa", b"12345")
    contents.put("bb", b"12345")
    contents.put("aa", b"12345")
    contents.put("cc", b"1")

    assert contents.size_bytes == 6 + 2 * ENTRY_BYTES
    assert contents.get("bb") is None


def test_what_is_larger_than_the_whole_pushes_nothing_out() -> None:
    contents = Contents(10 + 2 * ENTRY_BYTES)
    contents.put("aa", b"12345")
    contents.put("bb", b"x" * (11 + ENTRY_BYTES))

    assert contents.get("aa") == b"12345"
    assert contents.get("bb") is None


def test_many_threads_never_make_it_hold_more_than_its_limit() -> None:
    contents = Contents(20_000)

    def work(thread: int) -> None:
        for number in range(2_000):
            contents.put(f"{thread}-{number}", b"x" * (number % 500))
            contents.get(f"{thread}-{number - 5}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))

    kept = [contents.get(f"{thread}-{number}") for thread in range(8) for number in range(2_000)]
    costs = [ENTRY_BYTES + len(each) for each in kept if each is not None]
    assert sum(costs) == contents.size_bytes <= 20_000
