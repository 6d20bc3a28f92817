"""What holds of any folder taken into any memory: rehearsed as done, whole or not at all."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memories.durable.beneath import everything, misfits

import holdfast
from holdfast.ground.errors import ImportRefused, MemoryFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.markdown.format import MARKER, File
from holdfast.memories.durable.markdown.transfer import How, Mode, export_files, import_files
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import ImportReport
from holdfast.testing.serving import new_workspace

CAP = 4
KEYS = ("a", "b", "c", "A", "é")
CATEGORIES = ("core", "notes", "daily", "workspace")

stored = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from("xy"), st.sampled_from(CATEGORIES)), max_size=8
)
lines = st.sampled_from(
    [
        *("agent: agent_7", "agent: agent_9", "title: by hand", "# a note", ""),
        *("updated: 2001-01-01T00:00:00Z", "updated: 2999-01-01T00:00:00Z", "seq: 7", "seq: x"),
        *("tags: [one, two]", 'tags: ["one"]', "tags: one", "created: yesterday"),
    ]
)
bodies = st.sampled_from(["x", "y", "x\n", "\nx\n\n", " ", "---\nkey: other\n---\nx", "é" * 9_000])


@st.composite
def by_hand(draw: st.DrawFn) -> str:
    """Draw a file as somebody wrote it: much of it good, some of it not."""
    front = [f"key: {draw(st.sampled_from([*KEYS, ' ']))}"]
    front += [f"category: {draw(st.sampled_from([*CATEGORIES, 'conversation']))}"]
    front += draw(st.lists(lines, max_size=2, unique=True))
    text = "\n".join(["---", *draw(st.permutations(front)), "---", draw(bodies)])
    edits = ["", "\n", "as it is", "crlf", "bom", "cut"]
    match draw(st.sampled_from(edits)):
        case "crlf":
            return text.replace("\n", "\r\n")
        case "bom":
            return f"\ufeff{text}"
        case "cut":
            return text[: draw(st.integers(0, len(text)))]
        case end:
            return text + end.replace("as it is", "")


folders = st.lists(by_hand(), max_size=6).map(
    lambda texts: [(f"{number}.md", text) for number, text in enumerate(texts)]
)
modes = st.sampled_from(("upsert", "replace"))
slow = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def memory() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def new_memory(memory: Holdfast, entries: list[tuple[str, str, str]]) -> Holdfast:
    """Return a workspace of its own in which *entries* were stored, as far as they may."""
    hf = memory.acting(workspace=new_workspace())
    hf.set_durable_limits(cap=CAP, workspace_cap=CAP)
    for key, content, category in entries:
        try:
            hf.durable("agent_7").set(key, content, category=category)
        except MemoryFull as full:
            assert full.core_entries == CAP  # noqa: PT017 - the one refusal that may come
    return hf


def taken_in(durable: DurableMemory, files: list[File], how: How) -> ImportReport | None:
    """Return the report, or None if all of it was refused."""
    try:
        return import_files(durable.context, files, how)
    except ImportRefused:
        return None


@given(stored, folders, modes)
@slow
def test_a_rehearsal_says_what_is_then_done_and_writes_nothing(
    memory: Holdfast, entries: list[tuple[str, str, str]], files: list[File], mode: Mode
) -> None:
    hf = new_memory(memory, entries)
    durable = hf.durable("agent_7")
    before = everything(hf)

    rehearsed = taken_in(durable, files, How(mode=mode, dry_run=True))
    assert everything(hf) == before
    done = taken_in(durable, files, How(mode=mode))

    if done is None:
        assert rehearsed is None
        assert everything(hf) == before
    else:
        assert rehearsed is not None
        for name in ("created", "replaced", "unchanged", "removed", "rejected", "ignored"):
            assert getattr(rehearsed, name) == getattr(done, name), name
    assert misfits(hf) == []


@given(stored, folders, modes)
@slow
def test_every_file_is_told_of_once(
    memory: Holdfast, entries: list[tuple[str, str, str]], files: list[File], mode: Mode
) -> None:
    durable = new_memory(memory, entries).durable("agent_7")

    report = taken_in(durable, files, How(mode=mode))

    if report is not None:
        told = (*report.created, *report.replaced, *report.unchanged, *report.rejected)
        assert len(told) == len(files)
        if mode == "replace":
            assert report.rejected == ()
            own = {entry.key for entry in durable.list() if entry.scope == "agent"}
            assert own <= {*report.created, *report.replaced, *report.unchanged}
        else:
            there = {entry.key for entry in durable.list()}
            assert {*report.created, *report.replaced, *report.unchanged} <= {
                *there,
                *report.removed,
            }


@given(stored, folders)
@slow
def test_what_was_taken_in_is_given_out_and_taken_in_again_unchanged(
    memory: Holdfast, entries: list[tuple[str, str, str]], files: list[File]
) -> None:
    hf = new_memory(memory, entries)
    durable = hf.durable("agent_7")
    taken_in(durable, files, How())
    given_out = export_files(durable.context)
    before = everything(hf)["durable_entries"]

    report = taken_in(durable, [file for file in given_out if file[0] != MARKER], How())

    assert report is not None
    assert len(report.unchanged) == len(given_out) - 1
    assert (report.created, report.replaced, report.removed, report.rejected) == ((), (), (), ())
    assert everything(hf)["durable_entries"] == before
    assert export_files(durable.context) == given_out
