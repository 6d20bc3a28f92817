from concurrent.futures import ThreadPoolExecutor

from holdfast.doors.mount.storage.source import ENTRY_BYTES, Contents


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
