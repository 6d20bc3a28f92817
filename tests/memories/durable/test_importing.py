"""Files taken in as entries: which, when, in which order, and which not."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import holdfast
from holdfast.ground.errors import (
    IdempotencyMismatch,
    ImportRefused,
    InvalidInput,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.markdown.folder import MOST_BYTES, ROOMY, FolderLimits, read_folder
from holdfast.memories.durable.markdown.format import File, path_of
from holdfast.memories.durable.markdown.transfer import (
    How,
    export_files,
    export_markdown,
    import_files,
    import_markdown,
)
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import EntryFields, ImportReport, RejectedFile
from holdfast.memories.durable.validation import checked_entry
from holdfast.testing.fakes import FrozenClock

REPLACE = How(mode="replace")
YESTERDAY = "2025-12-31T00:00:00.000Z"


def file(key: str, content: str = "x", category: str = "notes", *more: str) -> File:
    front = "\n".join([f"key: {key}", f"category: {category}", *more])
    return f"{category}/{key}.md", f"---\n{front}\n---\n{content}\n"


def take(durable: DurableMemory, *files: File, how: How = How()) -> ImportReport:  # noqa: B008 - frozen
    return import_files(durable.context, files, how)


def told(durable: DurableMemory) -> list[tuple[object, ...]]:
    """Return what an export keeps of every entry, newest first."""
    return [
        (e.key, e.content, e.category, e.tags, e.scope, e.created_at, e.updated_at, e.expires_at)
        for e in durable.list(limit=1000)
    ]


def test_a_file_becomes_an_entry(durable: DurableMemory) -> None:
    report = take(durable, file("owner", "Ada\nLovelace", "core", "tags: [b, a]"))

    entry = durable.get("owner")
    assert report == ImportReport(
        created=("owner",),
        replaced=(),
        unchanged=(),
        removed=(),
        rejected=(),
        ignored=0,
        dry_run=False,
    )
    assert entry
    assert (entry.content, entry.category, entry.tags) == ("Ada\nLovelace", "core", ("a", "b"))
    assert entry.created_by.actor == durable.context.actor


def test_the_log_says_which_file_it_was(durable: DurableMemory) -> None:
    take(durable, file("owner"))

    assert durable.history("owner").data[0].cause == {"imported_from": "notes/owner.md"}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("notes/owner.md", "notes/owner.md"),
        ("owner.md", "owner.md"),
        (path_of("core", "owner"), "core/owner.md"),
        ("notes/deploy_target.md", "notes/*.md"),
        ("deploy_target.md", "*.md"),
    ],
)
def test_the_log_does_not_keep_a_name_that_is_made_of_another_key(
    durable: DurableMemory, name: str, kept: str
) -> None:
    import_files(durable.context, [(name, "---\nkey: owner\ncategory: core\n---\nAda\n")])

    assert durable.history("owner").data[0].cause == {"imported_from": kept}


def test_an_unchanged_entry_is_not_written(durable: DurableMemory, clock: FrozenClock) -> None:
    before = durable.set("ticket", "x", category="daily")
    clock.tick(3600)

    report = take(durable, file("ticket", "x", "daily"))

    after = durable.get("ticket")
    assert report.unchanged == ("ticket",)
    assert after
    assert (after.seq, after.expires_at) == (before.seq, before.expires_at)
    assert len(durable.history().data) == 1


def test_a_changed_entry_is_written_now(durable: DurableMemory, clock: FrozenClock) -> None:
    before = durable.set("owner", "x", category="notes")
    clock.tick(3600)

    report = take(durable, file("owner", "y", "notes", f"updated: {YESTERDAY}"))

    after = durable.get("owner")
    assert report.replaced == ("owner",)
    assert after
    assert (after.id, after.created_at) == (before.id, before.created_at)
    assert after.updated_at == clock.now()


def test_a_new_entry_has_the_times_of_its_file(durable: DurableMemory) -> None:
    take(durable, file("k", "x", "daily", "created: 2025-12-30T00:00:00Z", f"updated: {YESTERDAY}"))

    entry = durable.get("k")
    assert entry
    assert entry.created_at == datetime(2025, 12, 30, tzinfo=UTC)
    assert entry.updated_at == datetime(2025, 12, 31, tzinfo=UTC)
    assert entry.expires_at == datetime(2026, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    "lines", [(), ("created: 2100-01-01T00:00:00Z", "updated: 2100-01-01T00:00:00Z")]
)
def test_a_future_or_missing_time_is_now(
    durable: DurableMemory, clock: FrozenClock, lines: tuple[str, ...]
) -> None:
    take(durable, file("k", "x", "notes", *lines))

    entry = durable.get("k")
    assert entry
    assert (entry.created_at, entry.updated_at) == (clock.now(), clock.now())


def test_the_first_instant_of_all_is_a_time(durable: DurableMemory) -> None:
    take(durable, file("k", "x", "notes", "created: 1970-01-01T00:00:00Z"))

    entry = durable.get("k")
    assert entry
    assert entry.created_at == datetime(1970, 1, 1, tzinfo=UTC)


def test_newest_stays_newest(durable: DurableMemory) -> None:
    durable.set("changed", "x", category="notes")
    files = [
        file("changed", "y", "notes", f"updated: {YESTERDAY}", "seq: 1"),
        file("by_hand"),
        file("new", "x", "notes", f"updated: {YESTERDAY}", "seq: 9"),
        file("newer", "x", "notes", f"updated: {YESTERDAY}", "seq: 10"),
        file("b", "x", "notes", "updated: 2025-12-30T00:00:00Z", "seq: 99"),
        file("a", "x", "notes", "updated: 2025-12-30T00:00:00Z", "seq: 99"),
    ]

    take(durable, *files)

    keys = [entry.key for entry in durable.list()]
    assert keys == ["by_hand", "changed", "newer", "new", "b", "a"]


def test_unknown_fields_are_counted(durable: DurableMemory) -> None:
    report = take(durable, file("k", "x", "notes", "title: t", "author: a"), file("l", "x"))

    assert report.ignored == 2


@pytest.mark.parametrize(
    ("given", "code", "reason"),
    [
        (("x/a.md", "no front matter"), "HF-MEM-004", "---"),
        (file("a", "x", "notes", "agent: agent_9"), "HF-MEM-001", "agent_9"),
        (file("a", "x", "conversation"), "HF-MEM-008", "run"),
        (file("a", "x" * 16_385), "HF-MEM-004", "16,384"),
        (file("a" * 256), "HF-MEM-004", "255"),
        (file("a", "x", "daily", "updated: 2025-12-28T23:59:59.999Z"), "HF-MEM-004", "72 hours"),
        (file("a", " "), "HF-MEM-004", "whitespace"),
        ((f"{'d' * 5000}/a.md", file("a")[1]), "HF-MEM-004", "4,096"),
    ],
    ids=["front matter", "agent", "run", "long", "long key", "expired", "blank", "long path"],
)
def test_what_cannot_go_in_is_rejected_and_the_rest_goes_in(
    durable: DurableMemory, given: File, code: str, reason: str
) -> None:
    report = take(durable, given, file("fine"))

    (rejected,) = report.rejected
    assert (rejected.path, rejected.code) == (given[0], code)
    assert reason in rejected.reason
    assert report.created == ("fine",)
    assert [entry.key for entry in durable.list()] == ["fine"]


def test_a_daily_entry_goes_in_to_its_last_millisecond(durable: DurableMemory) -> None:
    report = take(durable, file("a", "x", "daily", "updated: 2025-12-29T00:00:00.000Z"))

    assert report.created == ("a",)


def test_an_expired_file_of_what_is_still_there_unchanged_is_no_trouble(
    durable: DurableMemory,
) -> None:
    durable.set("a", "x", category="daily")

    report = take(durable, file("a", "x", "daily", "updated: 2025-12-01T00:00:00.000Z"))

    assert (report.unchanged, report.rejected) == (("a",), ())


def test_what_is_kept_beyond_a_lowered_limit_is_unchanged(durable: DurableMemory) -> None:
    durable.set("a", "x" * 100, category="notes")
    durable.set_limits(content_bytes=10)

    report = take(durable, file("a", "x" * 100), file("b", "x" * 100))

    assert report.unchanged == ("a",)
    assert [each.path for each in report.rejected] == ["notes/b.md"]


def test_a_key_in_two_files_is_rejected_in_both(durable: DurableMemory) -> None:
    copied = ("core/copy.md", file("a", "y", "core")[1])

    report = take(durable, file("a"), copied, file("b"))

    assert [each.path for each in report.rejected] == ["core/copy.md", "notes/a.md"]
    assert report.created == ("b",)


def test_another_agents_files_are_taken_over_when_that_is_asked_for(
    durable: DurableMemory, other: DurableMemory
) -> None:
    other.set("theirs", "x", category="core")

    report = take(durable, *export_files(other.context), how=How(rebind=True))

    entry = durable.get("theirs")
    assert report.created == ("theirs",)
    assert entry
    assert entry.agent == "agent_7"


def test_what_a_file_shares_goes_to_the_workspace(
    durable: DurableMemory, other: DurableMemory
) -> None:
    take(durable, file("house", "style", "workspace"))

    assert other.get("house")


def test_an_own_entry_and_the_one_it_shadows_both_go_in(
    durable: DurableMemory, hf: Holdfast
) -> None:
    durable.set("house", "ours", category="workspace")
    durable.set("house", "mine", category="core")
    elsewhere = hf.acting(workspace=f"{hf.workspace}-2").durable("agent_7")

    report = take(elsewhere, *export_files(durable.context))

    assert report.created == ("house", "house")
    assert {(e.scope, e.content) for e in elsewhere.list()} == {
        ("agent", "mine"),
        ("workspace", "ours"),
    }


def test_a_category_changed_by_hand_moves_the_entry(
    durable: DurableMemory, other: DurableMemory
) -> None:
    durable.set("house", "style", category="core")

    report = take(durable, file("house", "style", "workspace"))

    assert report.replaced == ("house",)
    assert [entry.scope for entry in durable.list()] == ["workspace"]
    assert other.get("house")


def test_a_new_entry_past_the_cap_evicts_and_the_report_says_so(durable: DurableMemory) -> None:
    durable.set("cold", "x", category="notes")
    durable.set("core", "x", category="core")
    durable.set_limits(cap=2)

    report = take(durable, file("new"))

    assert (report.created, report.removed) == (("new",), ("cold",))
    assert durable.get("cold") is None


def test_where_all_is_core_a_windowed_file_is_rejected(durable: DurableMemory) -> None:
    durable.set("core", "x", category="core")
    durable.set_limits(cap=1)

    report = take(durable, file("new"), file("core", "y", "core"))

    assert [(each.path, each.code) for each in report.rejected] == [("notes/new.md", "HF-MEM-005")]
    assert report.replaced == ("core",)


def test_replace_forgets_what_no_file_holds(durable: DurableMemory, other: DurableMemory) -> None:
    durable.set("kept", "x", category="notes")
    durable.set("gone", "x", category="core")
    durable.set("house", "style", category="workspace")
    other.set("theirs", "x", category="core")

    report = take(durable, file("kept"), file("new"), how=REPLACE)

    assert (report.created, report.unchanged, report.removed) == (("new",), ("kept",), ("gone",))
    assert {entry.key for entry in durable.list()} == {"kept", "new", "house"}
    assert durable.history("gone").data[0].op == "forget"
    assert other.get("theirs")


def test_replace_forgets_an_own_entry_whose_only_file_is_the_workspaces(
    durable: DurableMemory,
) -> None:
    durable.set("house", "ours", category="workspace")
    durable.set("house", "mine", category="core")

    report = take(durable, file("house", "ours", "workspace"), how=REPLACE)

    assert (report.unchanged, report.removed) == (("house",), ("house",))
    assert [entry.content for entry in durable.list()] == ["ours"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_replace_changes_nothing_when_a_file_is_rejected(
    durable: DurableMemory, dry_run: bool
) -> None:
    durable.set("old", "x", category="notes")
    before = told(durable)

    with pytest.raises(ImportRefused) as refused:
        take(
            durable,
            file("new"),
            ("x.md", "bad"),
            file("long", "x" * 16_385),
            how=How(mode="replace", dry_run=dry_run),
        )

    assert refused.value.code == "HF-MEM-011"
    rejected = cast("tuple[RejectedFile, ...]", refused.value.rejected)
    assert [each.path for each in rejected] == ["x.md", "notes/long.md"]
    assert told(durable) == before


def test_replace_changes_nothing_when_more_would_be_there_than_may(
    durable: DurableMemory,
) -> None:
    durable.set("old", "x", category="notes")
    durable.set_limits(cap=1)
    before = told(durable)

    with pytest.raises(ImportRefused) as refused:
        take(durable, file("a", "x", "core"), file("b", "x", "core"), how=REPLACE)

    assert refused.value.code == "HF-MEM-011"
    assert told(durable) == before


def test_replace_counts_what_the_workspace_has(durable: DurableMemory, hf: Holdfast) -> None:
    durable.set("house", "style", category="workspace")
    hf.set_durable_limits(workspace_cap=1)
    before = told(durable)

    with pytest.raises(ImportRefused):
        take(durable, file("more", "x", "workspace"), how=REPLACE)

    assert told(durable) == before


def test_replace_up_to_the_cap_evicts_nothing(durable: DurableMemory) -> None:
    for key in ("a", "b", "c"):
        durable.set(key, "x", category="notes")
    durable.set_limits(cap=3)
    files = [
        file("a", "x", "workspace"),
        file("b"),
        file("new", "x", "core", f"updated: {YESTERDAY}"),
        file("more"),
    ]

    report = take(durable, *files, how=REPLACE)

    assert (report.created, report.replaced, report.removed) == (("new", "more"), ("a",), ("c",))
    assert not durable.history(op="evict").data


def test_what_replace_forgot_is_in_no_file_of_the_database(sqlite_file: Path) -> None:
    with holdfast.open(sqlite_file) as hf:
        durable = hf.durable("agent_7")
        durable.set("Hildegard", "lives in Bingen", category="core")

        take(durable, file("new"), how=REPLACE)

        files = [each.read_bytes() for each in sqlite_file.parent.glob("h.db*")]
        assert not [each for each in files if b"Hildegard" in each or b"Bingen" in each]


def test_an_empty_folder_leaves_nothing_of_the_agents(
    durable: DurableMemory, tmp_path: Path
) -> None:
    durable.set("a", "x", category="notes")
    (tmp_path / "in").mkdir()

    report = import_markdown(durable.context, tmp_path / "in", REPLACE)

    assert report.removed == ("a",)


@pytest.mark.parametrize("mode", ["upsert", "replace"])
def test_a_dry_run_says_what_a_real_one_does_and_writes_nothing(
    durable: DurableMemory, mode: str
) -> None:
    durable.set("same", "x", category="notes")
    durable.set("changed", "x", category="notes")
    durable.set("gone", "x", category="notes")
    before, log = told(durable), durable.history().data
    files = [file("same"), file("changed", "y"), file("new"), file("house", "x", "workspace")]
    how = How(mode=mode)  # pyright: ignore[reportArgumentType] - both are modes

    rehearsed = take(durable, *files, how=How(mode=how.mode, dry_run=True))
    untouched = told(durable), durable.history().data
    real = take(durable, *files, how=how)

    assert untouched == (before, log)
    assert rehearsed.dry_run
    assert not real.dry_run
    assert rehearsed == replace(real, dry_run=True)


def test_a_dry_run_of_an_agent_nobody_wrote_to_leaves_no_trace_of_it(
    durable: DurableMemory, hf: Holdfast
) -> None:
    take(durable, file("a"), how=How(dry_run=True))

    assert not hf.durable_agents().data


def test_a_mode_that_is_none_is_refused(durable: DurableMemory) -> None:
    with pytest.raises(InvalidInput) as refused:
        take(durable, how=How(mode="merge"))  # pyright: ignore[reportArgumentType]

    assert (refused.value.field, refused.value.code) == ("mode", "HF-MEM-004")


def test_an_import_is_done_once_and_answered_each_time(durable: DurableMemory) -> None:
    durable.set("gone", "x", category="notes")
    durable.set("changed", "x", category="notes")
    files = [file("new"), file("changed", "y")]
    how = How(mode="replace")
    once = DurableMemory(durable.context.once("once"))
    first = take(once, *files, how=how)
    durable.forget("new")

    again = take(once, *files, how=how)

    assert first.removed == ("gone",)
    # The log no longer knows what was forgotten, so the answer does not either.
    assert again == replace(first, removed=("",))
    assert durable.get("new") is None


def test_rejections_are_answered_again_as_they_were(
    durable: DurableMemory, clock: FrozenClock
) -> None:
    files = [file("a", "x", "daily", "updated: 2025-12-30T00:00:00Z"), ("x.md", "bad")]
    files.append(file("b", "x", "daily", "updated: 2025-12-01T00:00:00Z"))
    once = DurableMemory(durable.context.once("once"))
    first = take(once, *files)
    clock.tick(20 * 3600)

    assert take(once, *files) == first
    assert len(first.rejected) == 2


def test_other_files_under_the_same_idempotency_key_are_a_mismatch(durable: DurableMemory) -> None:
    once = DurableMemory(durable.context.once("once"))
    take(once, file("a"))

    with pytest.raises(IdempotencyMismatch):
        take(once, file("b"))


def test_a_folder_is_read_with_all_folders_in_it(durable: DurableMemory, tmp_path: Path) -> None:
    deep = tmp_path / "in" / "/".join("d" * ROOMY.depth)
    deep.mkdir(parents=True)
    (deep / "a.MD").write_bytes(file("a")[1].encode())
    (tmp_path / "in/notes.txt").write_text("not for us")

    report = import_markdown(durable.context, str(tmp_path / "in"))

    assert (report.created, report.rejected) == (("a",), ())


def test_the_folder_itself_may_be_a_link(durable: DurableMemory, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.md").write_text(file("a")[1])
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert import_markdown(durable.context, tmp_path / "link").created == ("a",)


@pytest.mark.parametrize("there", [False, True])
def test_what_is_no_folder_is_refused(durable: DurableMemory, tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "in").write_text("x")

    with pytest.raises(InvalidInput) as refused:
        import_markdown(durable.context, tmp_path / "in", REPLACE)

    assert (refused.value.field, refused.value.code) == ("directory", "HF-MEM-004")


def test_a_hostile_folder_is_read_without_harm(durable: DurableMemory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(file("secret")[1])
    folder = tmp_path / "in"
    (folder / "fine").mkdir(parents=True)
    (folder / "fine/a.md").write_text(file("a")[1])
    (folder / "link.md").symlink_to(outside / "secret.md")
    (folder / "linked").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.md")
    (folder / "folder.md").mkdir()
    with (folder / "huge.md").open("wb") as huge:
        huge.truncate(1 << 40)
    (folder / "long.md").write_bytes(b"x" * (MOST_BYTES + 1))
    (folder / "bytes.md").write_bytes(b"---\nkey: \xff\n")
    (folder / ("/".join("d" * (ROOMY.depth + 1)))).mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.md")).write_text(file("named")[1])
    (folder / ".trash").mkdir()
    (folder / ".trash/old.md").write_text(file("old")[1])

    report = import_markdown(durable.context, folder)

    assert set(report.created) == {"a", "named"}
    assert [(each.path, each.code) for each in report.rejected] == [
        (path, "HF-MEM-004")
        for path in [
            "bytes.md",
            "d/d/d/d/d/d/d/d/d",
            "dangling",
            "huge.md",
            "link.md",
            "linked",
            "long.md",
            "loop",
            "pipe.md",
        ]
    ]
    assert durable.history("named").data[0].cause == {"imported_from": "*.md"}


@pytest.mark.parametrize("bounds", [FolderLimits(names=2), FolderLimits(together=5)])
def test_a_folder_that_holds_too_much_is_not_read_to_its_end(
    tmp_path: Path, bounds: FolderLimits
) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text("xx")

    with pytest.raises(InvalidInput):
        read_folder(tmp_path, bounds)


def test_a_linked_file_keeps_replace_from_forgetting_what_it_names(
    durable: DurableMemory, tmp_path: Path
) -> None:
    durable.set("a", "x", category="notes")
    export_markdown(durable.context, tmp_path / "in")
    (tmp_path / "in/notes/a.md").rename(tmp_path / "a.md")
    (tmp_path / "in/notes/a.md").symlink_to(tmp_path / "a.md")

    with pytest.raises(ImportRefused):
        import_markdown(durable.context, tmp_path / "in", REPLACE)

    assert durable.get("a")


def test_hidden_names_that_an_export_gives_are_read(
    durable: DurableMemory, other: DurableMemory, tmp_path: Path
) -> None:
    durable.set(".env", "x", category=".dot")
    export_markdown(durable.context, tmp_path / "in")

    assert import_markdown(other.context, tmp_path / "in", How(rebind=True)).created == (".env",)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
CATEGORIES = st.sampled_from(["core", "daily", "workspace", "notes", "Notes", "CORE", "con", "."])
KEYS = st.one_of(st.sampled_from(["a", "A", "a.b", "con", "..", "ß", "-"]), TEXTS)


def _good(given: tuple[str, str, str, list[str]]) -> bool:
    try:
        key, content, category, tags = given
        checked_entry(key, EntryFields(content=content, category=category, tags=tags))
    except InvalidInput:
        return False
    return True


ENTRIES = st.tuples(KEYS, TEXTS, CATEGORIES, st.lists(TEXTS, max_size=2)).filter(_good)


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 7200)), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_export_taken_in_elsewhere_is_the_same_memory(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[tuple[str, str, str, list[str]], int]],
) -> None:
    clock = FrozenClock()
    folder = tmp_path_factory.mktemp("identity")
    with holdfast.open(":memory:", clock=clock) as hf:
        durable = hf.durable("agent_7")
        for (key, content, category, tags), seconds in written:
            durable.set(key, content, category=category, tags=tags)
            clock.tick(seconds)
        export_markdown(durable.context, folder)
        elsewhere = hf.acting(workspace="elsewhere").durable("agent_7")

        first = import_markdown(elsewhere.context, folder)
        again = import_markdown(elsewhere.context, folder, REPLACE)

        assert not first.rejected
        assert told(elsewhere) == told(durable)
        assert len(again.unchanged) == len(told(durable))
        rendered = elsewhere.hydrate().render().replace(' tier="imported"', "")
        assert rendered == durable.hydrate().render()
