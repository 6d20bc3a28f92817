"""Files of an import: JSON by element, archives without unpacking, refused tricks."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

import holdfast
from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.library.holdfast import Holdfast
from holdfast.library.imports import files as reading
from holdfast.library.imports.files import documents, json_lines, members, opened
from holdfast.library.imports.records import ImportLog

FILES = Path(__file__).parent / "files"
LISTS = frozenset(("results",))


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:  # noqa: ARG002 - as little as it likes
        chunk, self._left = self._left[:3], self._left[3:]
        return chunk


def read(content: bytes, log: ImportLog | None = None) -> list[tuple[str, Any]]:
    stream = cast("BinaryIO", Trickle(content))
    return [(key, each) for _, key, each in documents("f.json", stream, LISTS, log or ImportLog())]


def archive(path: Path, **contents: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in contents.items():
            made.writestr(name, content)
    return path


def test_elements_are_whole_however_the_bytes_come() -> None:
    values: list[Any] = [{"a": [1, "ä]}"]}, 12345, "x\\", [], {}, None, True, 1.5, "\u2028"]

    assert read(json.dumps(values).encode()) == [("", each) for each in values]
    assert read(b"\xef\xbb\xbf" + json.dumps(values, ensure_ascii=False).encode()) == [
        ("", each) for each in values
    ]


def test_named_lists_of_an_object_are_read_by_element() -> None:
    content = {"next": None, "results": [1, {"b": 2}], "count": 1234567, "other": [3]}

    assert read(json.dumps(content).encode()) == [
        ("next", None),
        ("results", 1),
        ("results", {"b": 2}),
        ("count", 1234567),
        ("other", [3]),
    ]
    assert read(b" [ ] ") == read(b"{}") == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   ",
        b"hello",
        b"[1, 2",
        b"[1 2]",
        b'{"a" 1}',
        b"{1: 2}",
        b"[1] [2]",
        b"[NaN]",
        b"[" * 200_000,
        b'["\xff"]',
        b"\x00\x01",
    ],
)
def test_what_is_no_json_is_left_out_with_the_reason(content: bytes) -> None:
    log = ImportLog()
    read(content, log)

    (skipped,) = log.skipped
    assert skipped.place.startswith("f.json")
    assert skipped.reason


def test_records_before_a_fault_are_read() -> None:
    log = ImportLog()

    assert read(b'[{"a": 1}, {"b": 2}, {"c": ', log) == [("", {"a": 1}), ("", {"b": 2})]
    (skipped,) = log.skipped
    assert skipped.place == "f.json, after record 2"


def test_a_record_that_is_too_long_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ELEMENT_BYTES", 100)
    log = ImportLog()

    read(b'["' + b"x" * 200_000 + b'"]', log)
    assert "more than 100 characters" in log.skipped[0].reason


def test_a_broken_line_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ELEMENT_BYTES", 64)
    log, lines = ImportLog(), b'{"a": 1}\n\n{"b"\n\xff\n"' + b"x" * 200 + b'"\n{"c": 3}'

    found = list(json_lines("f", io.BytesIO(lines), log))

    assert found == [("f, line 1", {"a": 1}), ("f, line 6", {"c": 3})]
    assert [each.place for each in log.skipped] == ["f, line 3", "f, line 4", "f, line 5"]


@pytest.mark.parametrize("folder", ["", "export/"])
def test_an_archive_is_read_by_member(hf: Holdfast, tmp_path: Path, folder: str) -> None:
    path = archive(
        tmp_path / "export.zip",
        **{
            f"{folder}conversations.json": (FILES / "chatgpt_conversations.json").read_text(),
            f"{folder}memory.json": (FILES / "chatgpt_memory.json").read_text(),
            f"{folder}user.json": "{}",
            f"{folder}chat.html": "<html>",
            f"{folder}file-1.png": "x",
            f"{folder}file-2.png": "x",
            f"__MACOSX/{folder}._conversations.json": "x",
        },
    )
    report = hf.import_("chatgpt", [path], user="ada")

    assert (report.turns, report.items) == (4, 1)
    counts = {name: report.unmapped[name] for name in ("user.json", "chat.html", "*.png")}
    assert counts == {"user.json": 1, "chat.html": 1, "*.png": 2}
    assert report.skipped[0].place.startswith(f"export.zip/{folder}memory.json")


def test_numbered_conversations_and_memories_of_an_account_are_read(
    hf: Holdfast, tmp_path: Path
) -> None:
    chats = json.loads((FILES / "claude_conversations.json").read_text())
    account = json.loads((FILES / "claude_memories.json").read_text())[0]
    path = archive(
        tmp_path / "data.zip",
        **{
            "conversations-000.json": json.dumps(chats[:1]),
            "conversations-001.json": json.dumps(chats[1:]),
            "memories/acc0.json": json.dumps(account),
            "projects.json": "[]",
        },
    )
    report = hf.import_("claude", [path], user="ada")

    assert (report.turns, report.items) == (3, 4)


def test_an_archive_without_conversations_is_of_another_kind(hf: Holdfast, tmp_path: Path) -> None:
    path = archive(tmp_path / "export.zip", **{"notes.txt": "x"})

    with pytest.raises(UnknownFormat):
        hf.import_("claude", [path], user="ada")


@pytest.mark.parametrize(
    "name", ["../conversations.json", "/etc/conversations.json", "a\\..\\..\\x", "C:\\x", "a/../b"]
)
def test_paths_that_lead_out_of_an_archive_are_refused(
    hf: Holdfast, tmp_path: Path, name: str
) -> None:
    path = archive(tmp_path / "export.zip", **{"conversations.json": "[]", name: "[]"})

    with pytest.raises(InvalidInput, match="leads out of the archive"):
        hf.import_("chatgpt", [path], user="ada")


def test_a_link_in_an_archive_is_refused(hf: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    link = zipfile.ZipInfo("conversations.json")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(link, "/etc/passwd")

    with pytest.raises(InvalidInput, match="leads out of the archive"):
        hf.import_("chatgpt", [path], user="ada")


def test_a_bomb_is_refused_before_it_is_read(hf: Holdfast, tmp_path: Path) -> None:
    path = archive(tmp_path / "bomb.zip", **{"conversations.json": "[" + " " * 4_000_000})

    with pytest.raises(InvalidInput, match="compressed far more than text"):
        hf.import_("chatgpt", [path], user="ada")


def test_members_over_the_limit_are_refused(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FILE_BYTES", 1_000)
    noise = "".join(f"{number:x}" for number in range(400))
    path = archive(
        tmp_path / "export.zip",
        **{"conversations-0.json": f'["{noise}"]', "conversations-1.json": noise},
    )
    with pytest.raises(InvalidInput, match="at most 1,000 bytes"):
        hf.import_("chatgpt", [path], user="ada")


def test_a_member_that_is_longer_than_it_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FILE_BYTES", 10)

    ((_, stream),) = members("f.json", io.BytesIO(b"x" * 11), lambda _: True, ImportLog())
    with pytest.raises(InvalidInput, match="at most 10 bytes"):
        stream.read()


@pytest.mark.parametrize("cut", [40, -30, -4])
def test_a_damaged_archive_is_refused(hf: Holdfast, tmp_path: Path, cut: int) -> None:
    path = archive(tmp_path / "export.zip", **{"conversations.json": json.dumps(["x" * 500])})
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(InvalidInput, match="damaged"):
        hf.import_("chatgpt", [path], user="ada")


def test_changed_bytes_of_a_member_are_refused(hf: Holdfast, tmp_path: Path) -> None:
    content = (FILES / "chatgpt_conversations.json").read_text()
    path = archive(tmp_path / "export.zip", **{"conversations.json": content})
    raw = bytearray(path.read_bytes())
    raw[200:240] = bytes(40)
    path.write_bytes(bytes(raw))

    with pytest.raises(InvalidInput, match="damaged"):
        hf.import_("chatgpt", [path], user="ada")


def test_an_encrypted_archive_is_refused(hf: Holdfast, tmp_path: Path) -> None:
    path = archive(tmp_path / "export.zip", **{"conversations.json": "[]"})
    raw = path.read_bytes()
    central = raw.index(b"PK\x01\x02")
    raw = raw[:6] + b"\x01" + raw[7 : central + 8] + b"\x01" + raw[central + 9 :]
    path.write_bytes(raw)

    with pytest.raises(InvalidInput, match="encrypted"):
        hf.import_("chatgpt", [path], user="ada")


def test_what_is_no_regular_file_is_refused(hf: Holdfast, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be regular files"):
        hf.import_("mem0", [tmp_path], user="ada")
    with pytest.raises(InvalidInput, match="cannot be read"):
        hf.import_("mem0", [tmp_path / "absent.json"], user="ada")
    with pytest.raises(InvalidInput, match="must be a list"):
        hf.import_("mem0", "mem0.json", user="ada")


def test_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FILE_BYTES", 10)
    (tmp_path / "large.json").write_bytes(b"x" * 11)

    with pytest.raises(InvalidInput, match="at most 10 bytes"), opened(tmp_path / "large.json"):
        pass


def test_open_files_are_read_too(hf: Holdfast) -> None:
    content = io.BytesIO((FILES / "mem0.json").read_bytes())

    assert hf.import_("mem0", [content], user="ada").stored == 2
