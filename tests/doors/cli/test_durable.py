"""`holdfast durable` and `holdfast forget`, on a database and on a server."""

from pathlib import Path

import pytest
from doors.cli.lines import Run

from holdfast.testing.serving import Server, new_workspace

A = "agent_7"


def put(run: Run, key: str, content: str = "c", category: str = "core", *more: str) -> None:
    run("durable", "set", A, key, content, "--category", category, *more)


def keys(run: Run, *argv: str) -> list[str]:
    return [each["key"] for each in run("durable", *argv).data]


def test_an_entry_is_written_and_got(run: Run) -> None:
    stored = run("durable", "set", A, "k", "c", "--category", "core", "--tag", "b", "--tag", "a")

    entry = run("durable", "get", A, "k").json

    assert (stored.json["outcome"], entry["tags"]) == ("created", ["a", "b"])
    assert {name: stored.json[name] for name in entry} == entry


@pytest.mark.parametrize("content", [b"a\r\n\tb \n", "é\n".encode(), b" x"])
@pytest.mark.parametrize("argument", [["-"], []])
def test_what_is_piped_is_kept_byte_for_byte(run: Run, content: bytes, argument: list[str]) -> None:
    run("durable", "set", A, "k", *argument, "--category", "core", stdin=content)

    assert run("durable", "get", A, "k").json["content"].encode() == content


@pytest.mark.parametrize("content", [b"\xff", b"x" * 65_537, b""])
def test_what_cannot_be_kept_is_refused(fails: Run, content: bytes) -> None:
    ran = fails("durable", "set", A, "k", "-", "--category", "core", stdin=content)

    assert "content: " in ran.err


def test_a_list_is_filtered(run: Run) -> None:
    put(run, "one", "Ada", "own", "--tag", "a", "--tag", "b")
    put(run, "two", "Ada", "own", "--tag", "a")
    put(run, "three", "Bob", "core")

    assert keys(run, "list", A) == ["three", "two", "one"]
    assert keys(run, "list", A, "--tag", "a", "--tag", "b") == ["one"]
    assert keys(run, "list", A, "--category", "core") == ["three"]
    assert keys(run, "list", A, "--query", "ada") == ["two", "one"]
    assert keys(run, "list", A, "--prefix", "t", "--since", "1h") == ["three", "two"]
    assert keys(run, "search", A, "ada", "--category", "own") == ["two", "one"]


def test_a_list_goes_on_from_its_cursor_or_to_its_end(run: Run) -> None:
    for key in ("a", "b", "c"):
        put(run, key)

    first = run("durable", "list", A, "--limit", "2").json
    rest = run("durable", "list", A, "--limit", "2", "--page", first["next_page"]).json

    assert [each["key"] for each in (*first["data"], *rest["data"])] == ["c", "b", "a"]
    assert keys(run, "list", A, "--limit", "2", "--all") == ["c", "b", "a"]


def test_an_absent_key_is_told_with_those_that_may_be_meant(run: Run, fails: Run) -> None:
    put(run, "deploy_target")
    put(run, "owner")

    for act in ("get", "forget"):
        assert "Similar keys: deploy_target." in fails("durable", act, A, "deploy_targt").err
        assert "deploy_target" not in fails("durable", act, A, "nothing").err


def test_forgetting_says_so(run: Run, fails: Run) -> None:
    put(run, "k")

    assert run("durable", "forget", A, "k").json == {"forgotten": True, "key": "k"}
    fails("durable", "get", A, "k")


def test_forgetting_picks_a_scope(run: Run, fails: Run) -> None:
    put(run, "k", "c", "workspace")

    fails("durable", "forget", A, "k", "--scope", "agent")
    run("durable", "forget", A, "k", "--scope", "workspace")


def test_a_hydration_is_rendered_exactly(run: Run) -> None:
    put(run, "k", "fly.io")

    hydration = run("durable", "hydrate", A).json
    rendered = run("durable", "hydrate", A, "--render").out.decode()

    assert hydration["rendered"] == rendered
    assert "\nfly.io\n" in rendered
    assert run("durable", "hydrate", A, "--budget", "0", "--render").out.count(b"<omitted") == 1


def test_an_explanation_is_told(run: Run) -> None:
    put(run, "k")

    assert run("durable", "explain", A, "k").json["reason"] == "core"
    assert run("durable", "explain", A, "k", "--budget", "1").json["reason"] == "too_big"


def test_entries_go_to_a_folder_and_come_back(run: Run, fails: Run, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    put(run, "k")
    run("durable", "export", A, folder)
    run("durable", "forget", A, "k")

    dry = run("durable", "import", A, folder, "--dry-run").json
    done = run("durable", "import", A, folder).json
    other = run("durable", "import", "agent_1", folder, "--rebind").json

    assert dry["created"] == done["created"] == other["created"] == ["k"]
    assert "rejected" in fails("durable", "import", "agent_2", folder, "--mode", "replace").err


def test_what_was_done_is_listed(run: Run) -> None:
    put(run, "k")
    put(run, "other")
    run("durable", "forget", A, "k")

    changes = run("durable", "history", A).data
    assert [each["op"] for each in changes] == ["forget", "create", "create"]
    assert [each["key"] for each in changes] == [None, "other", None]
    assert run("durable", "history", A, "k").data[0]["op"] == "forget"


def test_agents_are_listed(run: Run) -> None:
    put(run, "k")

    assert [each["agent"] for each in run("durable", "agents").data] == [A]


def test_limits_are_shown_and_set(run: Run, fails: Run) -> None:
    put(run, "k")
    put(run, "other")

    assert run("durable", "limits", A).json["cap"] == 1_000
    assert "would have to go" in fails("durable", "limits", A, "--cap", "1").err
    changed = run("durable", "limits", A, "--cap", "1", "--evict", "--budget", "0").json
    assert [each["key"] for each in changed["evicted"]] == ["k"]
    assert (changed["limits"]["cap"], changed["limits"]["budget"]) == (1, 0)


def test_a_sweep_is_of_one_agent_or_of_all(run: Run) -> None:
    put(run, "k")
    nothing: dict[str, object] = {"expired": [], "ended_runs": 0, "removed": 0}

    assert run("durable", "sweep").json == nothing
    assert run("durable", "sweep", A).json == nothing


def test_an_agent_is_forgotten_whole(run: Run) -> None:
    put(run, "k")

    report = run("forget", "--agent", A, "--yes").json

    assert (report["type"], report["counts"]["durable_entries"]) == ("forget_report", 1)
    assert run("durable", "agents").data == []


@pytest.mark.parametrize(
    "argv",
    [
        ["durable", "set", A, "k", "c"],
        ["durable", "search", A, "  "],
        ["durable", "list", A, "--query", ""],
        ["durable", "list", A, "--limit", "0"],
        ["durable", "list", A, "--limit", "1001"],
        ["durable", "list", A, "--since", "soon"],
        ["durable", "hydrate", A, "--budget", "-1"],
        ["durable", "limits", A, "--cap", "0"],
        ["durable", "limits", A, "--evict"],
        ["durable", "import", A, "x", "--mode", "both"],
        ["durable", "forget", A, "k", "--scope", "all"],
        ["forget", "--yes"],
        ["forget", "--agent", A],
    ],
)
def test_a_command_line_that_is_wrong_asks_for_nothing(line: Run, db: str, argv: list[str]) -> None:
    ran = line(*argv, "--db", db)

    assert (ran.code, ran.out) == (2, b"")
    assert not Path(db).exists()


def test_a_server_is_asked_alike(line: Run, server: Server) -> None:
    there = ["--db", server.url, "--workspace", new_workspace()]

    stored = line("durable", "set", A, "k", "c", "--category", "core", *there)
    entry = line("durable", "get", A, "k", *there)
    missing = line("durable", "get", A, "kk", *there)

    assert (stored.code, entry.json["content"]) == (0, "c")
    assert (missing.code, missing.out) == (1, b"")
    assert "Similar keys: k." in missing.err


def test_entries_are_shown_as_they_were(run: Run, fails: Run) -> None:
    run("durable", "set", "agent_7", "owner", "Ada", "--category", "core")
    run("durable", "set", "agent_7", "gone", "Bob", "--category", "core")
    later = run("durable", "set", "agent_7", "owner", "Eve", "--category", "core").json
    then = ("--at", later["updated_at"])
    run("durable", "forget", "agent_7", "gone")

    listed = run("durable", "list", "agent_7", *then).json

    assert ([each["key"] for each in listed["data"]], listed["erased"]) == (["owner"], 1)
    assert run("durable", "get", "agent_7", "owner", *then).json["content"] == "Eve"
    early = fails("durable", "list", "agent_7", "--at", "2020-01-01T00:00:00Z").err
    assert "history begins" in early
