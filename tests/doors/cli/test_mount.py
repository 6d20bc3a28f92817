"""`mount` and `unmount` as command lines: what is refused before anything is mounted."""

from pathlib import Path

import pytest
from doors.cli.lines import Ran, Run

from holdfast.testing.serving import Server


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "m")


@pytest.fixture(autouse=True)
def store(run: Run) -> str:
    """Give a store, so that its absence is not what is told."""
    return run("stores", "create", "Notes").json["id"]


def assert_wrong(ran: Ran, says: str) -> None:
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert says in ran.err


@pytest.mark.parametrize("target", [":memory:", "sqlite::memory:"])
def test_what_nobody_else_could_reach_is_not_mounted(line: Run, place: str, target: str) -> None:
    assert_wrong(line("mount", place, "--store", "Notes", "--db", target), ":memory:")


def test_something_must_be_named(line: Run, place: str, db: str) -> None:
    assert_wrong(line("mount", place, "--db", db), "name a store or a session")


def test_nine_are_too_many(line: Run, place: str, db: str) -> None:
    named = [f"--store={number}" for number in range(9)]

    assert_wrong(line("mount", place, *named, "--db", db), "at most 8")


def test_none_is_named_twice(line: Run, place: str, db: str, store: str) -> None:
    twice = line("mount", place, "--store", "Notes", "--store", "Notes", "--db", db)
    by_id_too = line("mount", place, "--store", "Notes", "--store", store, "--db", db)

    assert_wrong(twice, "each store once")
    assert_wrong(by_id_too, "each store once")


def test_a_mode_is_one_that_there_is(line: Run, place: str, db: str) -> None:
    assert_wrong(line("mount", place, "--store", "Notes", "--mode", "copy", "--db", db), "copy")


def test_a_name_that_fits_several_lists_them(run: Run, fails: Run, place: str, store: str) -> None:
    other = run("stores", "create", "Notes").json["id"]

    says = fails("mount", place, "--store", "Notes").err

    assert store in says
    assert other in says


def test_a_name_that_fits_none_names_the_nearest(fails: Run, place: str) -> None:
    assert "The nearest is 'Notes'" in fails("mount", place, "--store", "notes!").err


def test_only_an_empty_directory_will_do(fails: Run, place: str) -> None:
    Path(place).mkdir()
    (Path(place) / "mine").touch()

    says = fails("mount", place, "--store", "Notes", "--mode", "fuse").err

    assert "empty directory" in says
    assert (Path(place) / "mine").exists()


def test_what_could_not_be_saved_is_kept_outside_the_mount(fails: Run, place: str) -> None:
    says = fails("mount", place, "--store", "Notes", "--spool", f"{place}/spool").err

    assert "--spool: must not be inside the mount" in says


def test_a_server_that_is_not_there_leaves_nothing(line: Run, place: str) -> None:
    ran = line("mount", place, "--store", "Notes", "--db", "http://127.0.0.1:1")

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert not Path(place).exists()


def test_an_archived_session_is_told_as_such(run: Run, fails: Run, place: str) -> None:
    session = ["--agent", "agent_7", "--environment", "laptop", "--store", "Notes"]
    made = run("sessions", "create", *session).json["id"]
    run("sessions", "archive", made)

    assert "is archived" in fails("mount", place, "--session", made).err


def test_a_token_needs_no_session_named(line: Run, place: str, server: Server) -> None:
    ran = line("mount", place, "--db", server.url, "--api-key", "hfs_unknown")

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "not valid" in ran.err


@pytest.mark.parametrize("asked", ["--status", "--note"])
def test_where_nothing_is_mounted_nothing_is_told(line: Run, place: str, asked: str) -> None:
    ran = line("mount", place, asked)

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert "There is no mount of memory stores" in ran.err


def test_what_is_not_mounted_is_not_unmounted(line: Run, tmp_path: Path) -> None:
    ran = line("unmount", str(tmp_path))

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert "Nothing was touched" in ran.err


def test_the_doctor_looks_at_what_a_mount_needs(run: Run) -> None:
    names = [row["name"] for row in run("doctor").data if row["name"].startswith("mount: ")]

    assert names == [
        "mount: extra",
        "mount: libfuse3",
        "mount: fusermount3",
        "mount: /dev/fuse",
        "mount: allow other",
        "mount: spool",
    ]


def test_the_doctor_tells_of_what_was_not_saved(
    line: Run, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "holdfast" / "spool" / store
    folder.mkdir(parents=True)
    (folder / "20260101T000000.000000Z-ESTALE-a.md").write_text("mine")

    ran = line("doctor", "--db", db)

    assert ran.code == 1
    assert next(row for row in ran.data if row["name"] == "mount: spool") == {
        "name": "mount: spool",
        "ok": False,
        "says": f"1 not saved: {folder}/20260101T000000.000000Z-ESTALE-a.md (ESTALE /a.md)."
        " Mount the store again, or save them by hand.",
    }
