import pytest
from doors.cli.lines import Run

import holdfast


def test_a_store_is_made_shown_and_listed(run: Run) -> None:
    made = run("stores", "create", "Prefs", "--description", "tabs", "--metadata", "a=b=c").json
    shown = run("stores", "show", made["id"]).json
    listed = run("stores", "list").json

    assert made["type"] == "memory_store"
    assert (made["description"], made["metadata"]) == ("tabs", {"a": "b=c"})
    assert shown == made
    assert listed == {"data": [made], "next_page": None}


def test_a_store_is_known_by_its_name_too(run: Run) -> None:
    made = run("stores", "create", "Prefs").json

    assert run("stores", "show", "Prefs").json == made


def test_a_name_that_several_stores_have_is_refused_with_their_ids(run: Run, fails: Run) -> None:
    ids = [run("stores", "create", "twin").json["id"] for _ in range(2)]

    says = fails("stores", "show", "twin").err

    assert all(id in says for id in ids)


def test_a_name_that_no_store_has_is_said_with_the_database_and_the_nearest(
    run: Run, fails: Run, db: str
) -> None:
    run("stores", "create", "Preferences")
    run("stores", "create", "Team rules")

    says = fails("stores", "show", "Prefs").err

    assert says == (
        f"holdfast: There is no memory store Prefs. The nearest is 'Preferences', in {db}.\n"
    )


def test_a_name_in_a_workspace_without_stores_is_said_with_the_workspace(
    run: Run, fails: Run, db: str
) -> None:
    run("stores", "create", "Prefs")

    says = fails("stores", "show", "Prefs", "--workspace", "blue").err

    assert says.endswith(f"There are no stores in {db}, workspace blue.\n")


def test_an_id_that_no_store_has_is_said_with_the_database(run: Run, fails: Run, db: str) -> None:
    run("stores", "create", "Prefs")

    assert f"in {db}." in fails("memories", "list", "memstore_" + "0" * 24).err


def test_an_id_of_another_kind_is_said(run: Run, fails: Run) -> None:
    run("stores", "create", "Prefs")

    says = fails("stores", "show", "mem_" + "0" * 24).err

    assert "a different kind of thing" in says


def test_what_is_not_given_stays(run: Run) -> None:
    run("stores", "create", "Prefs", "--description", "tabs", "--metadata", "a=1")

    changed = run("stores", "update", "Prefs", "--name", "Likes", "--metadata", "b=2").json

    assert (changed["name"], changed["description"]) == ("Likes", "tabs")
    assert changed["metadata"] == {"a": "1", "b": "2"}


def test_a_description_can_be_emptied(run: Run) -> None:
    run("stores", "create", "Prefs", "--description", "tabs")

    assert run("stores", "update", "Prefs", "--description", "").json["description"] == ""


def test_archived_stores_are_listed_when_asked_for(run: Run) -> None:
    run("stores", "create", "Prefs")

    archived = run("stores", "archive", "Prefs").json

    assert archived["archived_at"]
    assert run("stores", "list").data == []
    assert run("stores", "list", "--all").data == [archived]


def test_a_store_is_deleted_when_meant(run: Run) -> None:
    made = run("stores", "create", "Prefs").json

    gone = run("stores", "delete", "Prefs", "--yes").json

    assert gone == {"id": made["id"], "type": "memory_store_deleted"}
    assert run("stores", "list", "--all").data == []


def test_without_yes_and_a_terminal_nothing_is_deleted(run: Run, line: Run, db: str) -> None:
    run("stores", "create", "Prefs")

    ran = line("stores", "delete", "Prefs", "--db", db)

    assert ran.code == 2
    assert "--yes" in ran.err
    assert len(run("stores", "list").data) == 1


def test_the_cap_is_shown_and_changed(run: Run, fails: Run) -> None:
    run("stores", "create", "Prefs")
    before = run("stores", "configure").json
    after = run("stores", "configure", "--memories-cap", "1").json
    run("memories", "put", "Prefs", "/a.md", stdin=b"a")

    assert before["memories_cap"] == 10_000
    assert after == before | {"memories_cap": 1}
    assert "cap" in fails("memories", "put", "Prefs", "/b.md", stdin=b"b").err


def test_all_pages_are_walked(run: Run, db: str) -> None:
    with holdfast.open(db) as hf:
        for number in range(101):
            hf.memory_stores.create(name=f"store {number}")

    assert len(run("stores", "list").data) == 101


@pytest.mark.parametrize("pair", ["alone", "=value"])
def test_a_pair_that_is_none_is_wrong_usage(line: Run, db: str, pair: str) -> None:
    ran = line("stores", "create", "Prefs", "--metadata", pair, "--db", db)

    assert (ran.code, ran.out) == (2, b"")
    assert "K=V" in ran.err


def test_a_workspace_keeps_to_itself(run: Run) -> None:
    run("stores", "create", "Prefs", "--workspace", "blue")

    assert run("stores", "list").data == []
    assert len(run("stores", "list", "--workspace", "blue").data) == 1


def test_the_target_may_be_in_the_environment(
    line: Run, run: Run, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("stores", "create", "Prefs").json

    monkeypatch.setenv("HOLDFAST_DB", db)

    assert line("stores", "list").data == [made]


def test_a_store_is_listed_as_it_was_and_restored(run: Run, fails: Run) -> None:
    run("stores", "create", "Prefs")
    made = run("memories", "put", "Prefs", "/a.md", stdin=b"old").json
    run("memories", "put", "Prefs", "/a.md", stdin=b"new")
    late = run("memories", "put", "Prefs", "/b.md", stdin=b"more").json
    then = ("--at", made["updated_at"])

    listed = run("memories", "list", "Prefs", *then).json
    shown = run("memories", "show", "Prefs", "/a.md", *then).json
    preview = run("stores", "restore", "Prefs", *then, "--dry-run").json

    assert ([each["path"] for each in listed["data"]], shown["content"]) == (["/a.md"], "old")
    assert "path" in fails("memories", "show", "Prefs", late["id"], *then).err
    assert [(each["operation"], each["memory_id"]) for each in preview["edits"]] == [
        ("modified", made["id"]),
        ("deleted", late["id"]),
    ]
    assert run("stores", "restore", "Prefs", *then, "--yes").json["edits"] == preview["edits"]
    assert run("memories", "show", "Prefs", "/a.md").json["content"] == "old"
