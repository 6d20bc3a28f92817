"""Entries as Markdown files: exact to the byte, and exported to a folder."""

import errno
import json
import os
import re
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.ground.scope import Actor
from holdfast.memories.durable.markdown.folder import MOST_BYTES, target
from holdfast.memories.durable.markdown.format import (
    MARKER,
    Marker,
    path_of,
    read_file,
    read_marker,
    to_files,
    to_text,
)
from holdfast.memories.durable.markdown.transfer import export_files, export_markdown, write_export
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import By, DurableEntry, EntryFields, to_milliseconds
from holdfast.memories.durable.validation import checked_entry
from holdfast.testing.fakes import FrozenClock

AT = datetime(2026, 11, 1, 9, tzinfo=UTC)
ADA = DurableEntry(
    id="entry_1",
    key="customer_ada",
    content="Prefers invoices by post.",
    category="core",
    tags=("billing", "eu"),
    scope="agent",
    workspace="default",
    agent="agent_7",
    run_id=None,
    seq=412,
    size_bytes=51,
    created_at=AT,
    updated_at=AT + timedelta(days=19, hours=1),
    expires_at=None,
    created_by=By(actor=Actor.agent("agent_7")),
    updated_by=By(actor=Actor.agent("agent_7")),
)
DEVICES = ["con", "prn", "aux", "nul", "com1", "lpt9", "con.txt", "AUX", "Nul.Md", "com0.a.b"]


def is_entry(key: str, content: str, category: str) -> bool:
    try:
        checked_entry(key, EntryFields(content=content, category=category))
    except InvalidInput:
        return False
    return True


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
NAMES = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=90),
    st.text("aAbB.-_ :/\\%*?<>|\"'", min_size=1, max_size=6),
    st.sampled_from([*DEVICES, ".", "..", ".holdfast-export", "a--01234567", "a.", "K", "ß"]),
)
KEYS = NAMES.filter(lambda name: is_entry(name, "x", "x"))
LABELS = NAMES.filter(lambda name: is_entry("x", "x", name))
INSTANTS = st.integers(0, 4_102_444_800_000).map(
    lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)


@st.composite
def entries(draw: st.DrawFn) -> DurableEntry:
    """Give entries as they may be kept."""
    content = draw(TEXTS.filter(lambda text: is_entry("x", text, "x")))
    tags = draw(st.lists(LABELS, max_size=3))
    key, category = draw(KEYS), draw(LABELS)
    asked = checked_entry(key, EntryFields(content=content, category=category, tags=tags))
    return replace(
        ADA,
        key=asked.key,
        content=asked.content,
        category=asked.category,
        tags=asked.tags,
        agent=draw(st.sampled_from(["agent_7", None])),
        seq=draw(st.integers(1, 2**53)),
        created_at=draw(INSTANTS),
        updated_at=draw(INSTANTS),
    )


def front(*lines: str, body: str = "x\n") -> str:
    return "\n".join(["---", *lines, "---", body])


def test_a_file_is_what_the_entry_says_and_its_content() -> None:
    assert to_text(ADA) == (
        "---\n"
        'key: "customer_ada"\n'
        'category: "core"\n'
        'tags: ["billing", "eu"]\n'
        'tier: "said"\n'
        'agent: "agent_7"\n'
        'created: "2026-11-01T09:00:00.000Z"\n'
        'updated: "2026-11-20T10:00:00.000Z"\n'
        "seq: 412\n"
        "---\n"
        "Prefers invoices by post.\n"
    )


def test_what_a_workspace_shares_is_nobodys_own() -> None:
    said = read_file("x.md", to_text(replace(ADA, agent=None)))

    assert said.agent is None


def test_an_export_begins_with_what_makes_it_one() -> None:
    path, text = to_files([ADA], agent="agent_7", workspace="default")[0]

    assert path == MARKER
    assert text == '{"format": 1, "agent": "agent_7", "workspace": "default", "count": 1}\n'
    assert read_marker(text) == Marker(format=1, agent="agent_7", workspace="default", count=1)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "1"}', "x"])
def test_what_is_no_marker_is_none(text: str) -> None:
    assert read_marker(text) is None


@given(entries())
def test_a_file_read_back_is_the_entry(entry: DurableEntry) -> None:
    said = read_file("any.md", to_text(entry))

    asked = said.checked
    assert (asked.key, asked.content, asked.category, asked.tags) == (
        entry.key,
        entry.content,
        entry.category,
        entry.tags,
    )
    assert (said.agent, said.seq, said.ignored) == (entry.agent, entry.seq, 0)
    assert said.created == to_milliseconds(entry.created_at)
    assert said.updated == to_milliseconds(entry.updated_at)


@given(entries())
def test_an_editor_that_ends_files_with_a_line_feed_changes_nothing(entry: DurableEntry) -> None:
    text = to_text(entry).removesuffix("\n")
    edited = text if text.endswith("\n") else f"{text}\n"

    if not entry.content.endswith("\n"):
        assert read_file("any.md", edited).checked.content == entry.content


@given(entries(), st.text())
def test_whatever_a_file_holds_it_is_read_or_refused(entry: DurableEntry, junk: str) -> None:
    text = to_text(entry)
    for broken in (junk, f"---\n{junk}", text.replace("core", junk), f"{junk}{text}"):
        with suppress(InvalidInput):
            read_file("any.md", broken)


@given(st.lists(st.tuples(LABELS, KEYS), max_size=30, unique=True))
def test_no_two_entries_have_one_path_on_a_case_blind_disk(named: list[tuple[str, str]]) -> None:
    files = to_files(
        [replace(ADA, category=category, key=key) for category, key in named],
        agent="agent_7",
        workspace="default",
    )

    paths = [path for path, _ in files]
    # Windows drops dots at the end of a name.
    blind = {"/".join(part.rstrip(". ") for part in path.casefold().split("/")) for path in paths}
    assert len(blind) == len(named) + 1


@given(LABELS, KEYS)
def test_a_path_is_a_folder_and_a_name_that_any_disk_takes(category: str, key: str) -> None:
    path = path_of(category, key)

    assert re.fullmatch(r"[a-z0-9._-]{1,90}/[a-z0-9._-]{1,90}\.md", path)
    for name in path.split("/"):
        assert name not in (".", "..", MARKER)
        assert name.partition(".")[0] not in DEVICES


def test_entries_whose_short_hashes_meet_have_the_whole_ones() -> None:
    met = same_short_hash()

    files = to_files([replace(ADA, key=key) for key in met], agent="a", workspace="w")

    assert path_of("core", met[0]) == path_of("core", met[1])
    hashes = [sha256(b"core\0" + key.encode()).hexdigest() for key in met]
    assert {path for path, _ in files[1:]} == {f"core/{'a' * 40}--{each}.md" for each in hashes}


def same_short_hash() -> tuple[str, str]:
    """Return two keys that differ in case alone, with one beginning to their hashes."""
    seen: dict[str, str] = {}
    for letters in product("aA", repeat=40):
        key = "".join(letters)
        short = sha256(key.encode()).hexdigest()[:8]
        if seen.setdefault(short, key) != key:
            return seen[short], key
    raise AssertionError


@pytest.mark.parametrize("key", ["customer_ada", "a.b-c_9", "x" * 80, "con2", "xcon.a"])
def test_a_plain_key_is_its_own_name(key: str) -> None:
    assert path_of("core", key) == f"core/{key}.md"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("Ada", "ada"),
        ("a b", "a-b"),
        ("über/ich", "-ber-ich"),
        (".env", ".env"),
        ("con", "con"),
        ("con.txt", "con-txt"),
        ("a--01234567", "a--01234567"),
        ("x" * 81, "x" * 80),
    ],
)
def test_any_other_key_has_its_hash_behind_it(key: str, name: str) -> None:
    assert path_of("core", key) == f"core/{name}--{sha256(key.encode()).hexdigest()[:8]}.md"


def test_a_folder_never_ends_in_a_dot() -> None:
    assert path_of("a.", "k") == f"a.--{sha256(b'a.').hexdigest()[:8]}/k.md"


def test_bare_text_is_taken_as_it_is() -> None:
    said = read_file(
        "x.md",
        front("key: customer: ada", "category:core", "tags: [billing, eu ,a b]", "agent: agent_7"),
    )

    assert said.checked.key == "customer: ada"
    assert said.checked.category == "core"
    assert said.checked.tags == ("a b", "billing", "eu")
    assert said.agent == "agent_7"


@pytest.mark.parametrize("tags", ["", "null", "[]", "[ ]"])
def test_no_tags_are_told_in_many_ways(tags: str) -> None:
    assert read_file("x.md", front("key: k", "category: c", f"tags: {tags}")).checked.tags == ()


def test_a_quoted_tag_may_hold_a_comma() -> None:
    said = read_file("x.md", front("key: k", "category: c", 'tags: ["a, b", c]'))

    assert said.checked.tags == ("a, b", "c")


def test_what_is_left_out_is_none() -> None:
    said = read_file("x.md", front("key: k", "category: c"))

    assert (said.agent, said.created, said.updated, said.seq) == (None, None, None, None)


def test_unknown_fields_are_counted() -> None:
    said = read_file("x.md", front("title: t", "key: k", "", "# mine", "category: c", "author: a"))

    assert said.ignored == 2


def test_a_field_that_only_looks_like_ours_stands_in_the_content() -> None:
    body = "---\nkey: other\n---\n"

    assert read_file("x.md", front("key: k", "category: c", body=body)).checked.content == body[:-1]


@pytest.mark.parametrize(
    ("body", "content"), [("x", "x"), ("x\n", "x"), ("x\n\n", "x\n"), ("\nx\r\n", "\nx\r")]
)
def test_one_line_feed_at_the_end_is_not_the_contents(body: str, content: str) -> None:
    assert read_file("x.md", front("key: k", "category: c", body=body)).checked.content == content


def test_a_file_whose_line_ends_were_converted_is_converted_back() -> None:
    text = front("key: k", "category: c", body="one\ntwo\n").replace("\n", "\r\n")

    assert read_file("x.md", f"\ufeff{text}").checked.content == "one\ntwo"


@pytest.mark.parametrize(
    ("told", "hour"),
    [
        ("2026-11-01T09:00:00.000Z", 9),
        ("2026-11-01t10:00:00+01:00", 9),
        ("2026-11-01T09:00:00Z", 9),
    ],
)
def test_times_are_of_rfc_3339(told: str, hour: int) -> None:
    said = read_file("x.md", front("key: k", "category: c", f"updated: {told}"))

    assert said.updated == to_milliseconds(AT.replace(hour=hour))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "key: k\ncategory: c\nx",
        "---\nkey: k\ncategory: c\nx",
        "--- \nkey: k",
        "---\n---",
        front("key: k"),
        front("category: c"),
        front("key:", "category: c"),
        front("key: k", "key: l", "category: c"),
        front("key: k", "category: c", "no field"),
        front("key: k", "category: c", "tags:", "  - a: b"),
        front('key: "k', "category: c"),
        front('key: "k" x', "category: c"),
        front("key: k", "category: c", "tags: a"),
        front("key: k", "category: c", "tags: [a, , b]"),
        front("key: k", "category: c", 'tags: ["a" b]'),
        front("key: k", "category: c", f'tags: [{" " * 200_000}"]'),
        front("key: k", "category: c", "updated: yesterday"),
        front("key: k", "category: c", "created: 2026-11-01"),
        front("key: k", "category: c", "created: 2026-11-01T09:00:00"),
        front("key: k", "category: c", "seq: x"),
        front("key: k", "category: c", f"seq: {'9' * 10_000}"),
        front(f"key: {'k' * 256}", "category: c"),
        front('key: "\\ud800"', "category: c"),
        front('key: "a\\u0000"', "category: c"),
        front("key: k", "category: c", body=""),
        front("key: k", "category: c", body=" \n"),
    ],
    ids=lambda text: repr(text[:40]),
)
def test_bad_front_matter_or_a_broken_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_file("x.md", text)


def test_a_refusal_never_repeats_what_might_be_content() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_file("x.md", "---\nkey: k\nmy secret\nis out")

    assert "secret" not in str(refused.value)


def test_a_time_before_the_first_year_is_its_beginning() -> None:
    said = read_file("x.md", front("key: k", "category: c", "created: 0001-01-01T00:00:00+14:00"))

    assert said.created == to_milliseconds(datetime(1, 1, 1, tzinfo=UTC))


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file in *folder* by its path."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_an_export_is_a_file_for_each_entry(durable: DurableMemory, folder: Path) -> None:
    durable.set("owner", "Ada\r\n", category="core")
    durable.set("Plan B", "x", category="notes")
    durable.set("house", "style", category="workspace")

    report = export_markdown(durable.context, folder)

    assert report.removed == ()
    assert set(report.written) == tree(folder).keys() - {MARKER}
    assert {path.split("/")[0] for path in report.written} == {"core", "notes", "workspace"}
    assert (folder / "core/owner.md").read_bytes().endswith(b"---\nAda\r\n\n")
    assert json.loads((folder / MARKER).read_bytes()) == {
        "format": 1,
        "agent": "agent_7",
        "workspace": durable.context.workspace,
        "count": 3,
    }


def test_an_export_is_for_its_owner_alone_whatever_the_umask(
    durable: DurableMemory, tmp_path: Path
) -> None:
    durable.set("owner", "Ada", category="core")
    folder, mask = tmp_path / "new" / "out", os.umask(0)

    try:
        export_markdown(durable.context, folder)
    finally:
        os.umask(mask)

    made = [folder.parent, folder, *folder.rglob("*")]
    modes = {(each.is_dir(), stat.S_IMODE(each.stat().st_mode)) for each in made}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_an_earlier_export_keeps_the_modes_of_its_folders(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("owner", "Ada", category="core")
    export_markdown(durable.context, folder)
    (folder / "core").chmod(0o755)
    (folder / "core/owner.md").chmod(0o644)

    export_markdown(durable.context, folder)

    assert stat.S_IMODE((folder / "core").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "core/owner.md").stat().st_mode) == 0o600


def test_conversation_and_expired_entries_stay_out(
    durable: DurableMemory, clock: FrozenClock, folder: Path
) -> None:
    with durable.run() as run:
        run.set("scratch", "x", category="conversation")
        durable.set("ticket", "x", category="daily")
        durable.set("kept", "x", category="core")
        clock.tick(72 * 3600 + 0.001)

        report = export_markdown(durable.context, folder)

    assert report.written == ("core/kept.md",)


def test_what_the_workspace_shares_may_be_left_out(durable: DurableMemory, folder: Path) -> None:
    durable.set("house", "style", category="workspace")
    durable.set("mine", "x", category="core")

    report = export_markdown(durable.context, folder, include_workspace=False)

    assert report.written == ("core/mine.md",)


def test_an_own_entry_and_the_one_it_shadows_are_both_there(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("house", "ours", category="workspace")
    durable.set("house", "mine", category="core")

    assert export_markdown(durable.context, folder).written == (
        "core/house.md",
        "workspace/house.md",
    )


def test_the_same_memory_gives_the_same_bytes(
    durable: DurableMemory, clock: FrozenClock, tmp_path: Path
) -> None:
    for key in ("a", "B", "c"):
        durable.set(key, "x", category="notes", tags=["t"])
    export_markdown(durable.context, tmp_path / "one")
    clock.tick(60)

    export_markdown(durable.context, tmp_path / "two")

    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_an_earlier_export_is_renewed(durable: DurableMemory, folder: Path) -> None:
    durable.set("gone", "x", category="notes")
    durable.set("old", "x", category="core")
    export_markdown(durable.context, folder)
    durable.forget("gone")
    durable.set("old", "y", category="core")

    report = export_markdown(durable.context, folder)

    assert report.removed == ("notes/gone.md",)
    assert tree(folder) == {path: text.encode() for path, text in export_files(durable.context)}
    assert not (folder / "notes").exists()


def test_a_file_that_was_edited_goes_as_well_when_its_entry_is_gone(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("gone", "x", category="notes")
    export_markdown(durable.context, folder)
    durable.forget("gone")
    path = folder / "notes/gone.md"
    path.write_text(path.read_text().replace('key: "gone"', "key: gone"))

    assert export_markdown(durable.context, folder).removed == ("notes/gone.md",)


def test_what_no_export_wrote_is_left_alone(
    durable: DurableMemory, other: DurableMemory, folder: Path, tmp_path: Path
) -> None:
    other.set("theirs", "x", category="notes")
    export_markdown(other.context, tmp_path / "theirs")
    durable.set("mine", "x", category="notes")
    export_markdown(durable.context, folder)
    by_hand = {
        "README.md": b"About this",
        "notes/new.md": b"---\nkey: new\ncategory: notes\n---\nby hand\n",
        "notes/copied.md": (folder / "notes/mine.md").read_bytes(),
        "notes/theirs.md": (tmp_path / "theirs/notes/theirs.md").read_bytes(),
        "notes/huge.md": b"x" * (MOST_BYTES + 1),
        "notes/bytes.md": b"\xff",
        ".git/HEAD": b"ref: x",
    }
    for path, content in by_hand.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)

    report = export_markdown(durable.context, folder)

    assert report.removed == ()
    assert by_hand.items() <= tree(folder).items()


def test_a_folder_is_made_with_those_above_it(durable: DurableMemory, tmp_path: Path) -> None:
    export_markdown(durable.context, tmp_path / "a/b/c")

    assert tree(tmp_path / "a").keys() == {f"b/c/{MARKER}"}


@pytest.mark.parametrize(
    "content",
    [
        {"note.txt": "x"},
        {".git/HEAD": "x"},
        {MARKER: "x"},
        {MARKER: '{"format": 2, "agent": "agent_7", "workspace": "w", "count": 0}'},
        {MARKER: '{"format": 1, "agent": "agent_8", "workspace": "w", "count": 0}'},
        {MARKER: '{"format": 1, "agent": "agent_7", "workspace": "v", "count": 0}'},
        {f"{MARKER}/x": "x"},
    ],
    ids=["a file", "a folder", "no marker", "newer", "another agent", "another workspace", "odd"],
)
def test_any_other_folder_is_refused_and_untouched(
    durable: DurableMemory, folder: Path, content: dict[str, str]
) -> None:
    durable.set("k", "x", category="core")
    for path, text in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace('"w"', f'"{durable.context.workspace}"'))
    before = tree(folder)

    with pytest.raises(InvalidInput) as refused:
        export_markdown(durable.context, folder)

    assert (refused.value.field, refused.value.code) == ("directory", "HF-MEM-004")
    assert tree(folder) == before


def test_a_file_is_no_folder(durable: DurableMemory, folder: Path) -> None:
    folder.write_text("x")

    with pytest.raises(InvalidInput):
        export_markdown(durable.context, folder)

    assert folder.read_text() == "x"


@pytest.mark.parametrize("directory", ["", "a\0b", 7, b"bytes", None])
def test_what_is_no_path_is_refused(durable: DurableMemory, directory: object) -> None:
    with pytest.raises(InvalidInput):
        export_markdown(durable.context, directory)  # pyright: ignore[reportArgumentType]


def test_a_link_in_the_place_of_a_folder_leads_nowhere(
    durable: DurableMemory, folder: Path, tmp_path: Path
) -> None:
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    elsewhere = tmp_path / "elsewhere"
    (folder / "core").rename(elsewhere)
    (folder / "core").symlink_to(elsewhere)
    durable.set("k", "y", category="core")
    before = tree(elsewhere)

    with pytest.raises(InvalidInput):
        export_markdown(durable.context, folder)

    assert tree(elsewhere) == before


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(
    durable: DurableMemory, folder: Path, tmp_path: Path
) -> None:
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (folder / "core/k.md").unlink()
    (folder / "core/k.md").symlink_to(precious)

    export_markdown(durable.context, folder)

    assert precious.read_text() == "precious"
    assert not (folder / "core/k.md").is_symlink()


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("a", "x", category="core")
    export_markdown(durable.context, folder)
    durable.set("a", "y", category="core")
    durable.set("k", "x", category="core")
    (folder / "core/k.md").mkdir()
    before = tree(folder)

    with pytest.raises(InvalidInput):
        export_markdown(durable.context, folder)

    assert tree(folder) == before


def test_what_a_broken_off_export_left_is_cleared_away(
    durable: DurableMemory, folder: Path
) -> None:
    aside = f".holdfast-{'0' * 16}.part"
    folder.mkdir()
    (folder / aside).write_text("half")
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    (folder / "core" / aside).write_text("half")

    export_markdown(durable.context, folder)

    assert tree(folder).keys() == {MARKER, "core/k.md"}


def test_a_pipe_among_the_files_is_not_waited_for(durable: DurableMemory, folder: Path) -> None:
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    os.mkfifo(folder / "core/pipe.md")

    export_markdown(durable.context, folder)

    assert (folder / "core/pipe.md").is_fifo()


@pytest.mark.parametrize(
    "path",
    ["../x.md", "./x.md", "/x.md", "a/../../x.md", "a/b/c.md", "x.md", "a/x", "A/x.md", "a/x.md\n"],
)
def test_files_of_a_hostile_server_stay_in_the_folder(folder: Path, path: str) -> None:
    marker = '{"format": 1, "agent": "agent_7", "workspace": "w", "count": 1}'

    with pytest.raises(InvalidInput):
        write_export(folder, ((MARKER, marker), (path, "x")))

    assert tree(folder.parent) == {}


def test_files_without_a_marker_are_refused(folder: Path) -> None:
    with pytest.raises(InvalidInput):
        write_export(folder, (("a/x.md", "x"),))


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "full"), (errno.EROFS, "read_only"), (errno.EIO, "io")]
)
def test_a_disk_that_fails_is_no_fault_of_the_folder(
    folder: Path, number: int, reason: str
) -> None:
    with pytest.raises(Unavailable) as failed, target(folder):
        raise OSError(number, "it fails")

    assert failed.value.reason == reason


def test_a_folder_that_may_not_be_made_is_refused(durable: DurableMemory) -> None:
    with pytest.raises(InvalidInput):
        export_markdown(durable.context, "/proc/holdfast")
