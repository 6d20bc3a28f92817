"""What the doctor says, and what it says needs a person."""

import os
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from contracts.questions import come_to_rest
from library.upkeep.meddling import asking, fill, opened

import holdfast
from holdfast.engines.sqlite.maintenance import holders
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.doctor import Check, doctor
from holdfast.testing.fakes import FrozenClock

LONGTERM = ("long-term counters", "long-term jobs", "long-term analyzer", "long-term extractors")


def said(hf: Holdfast) -> dict[str, Check]:
    checks = doctor(hf)
    assert len({each.name for each in checks}) == len(checks)
    return {each.name: each for each in checks}


def unwell(hf: Holdfast) -> dict[str, str]:
    return {each.name: each.says for each in doctor(hf) if not each.ok}


@pytest.mark.usefixtures("store")
def test_a_healthy_database_needs_nobody(hf: Holdfast) -> None:
    assert unwell(hf) == {}


def test_a_database_in_memory_needs_nobody() -> None:
    with holdfast.open(":memory:") as hf:
        assert unwell(hf) == {}


def test_a_run_that_waits_for_an_answer_needs_nobody_until_its_question_is_overdue(
    hf: Holdfast, target: str
) -> None:
    assert said(hf)["questions"].says == "no run waits"
    soon = datetime.now(UTC) + timedelta(days=1)
    come_to_rest(hf.runs.context, {"expires_at": soon})
    assert said(hf)["questions"] == Check("questions", ok=True, says="1 run waits for answers")

    with holdfast.open(target, clock=FrozenClock()) as then:
        past = then.runs.context.clock.now() + timedelta(days=1)
        come_to_rest(then.runs.context, {"expires_at": past}, run="run_2")

    check = said(hf)["questions"]
    assert not check.ok
    assert "2 runs wait for answers; 1 question has expired" in check.says
    hf.runs.retrieve("run_2")
    assert said(hf)["questions"] == Check("questions", ok=True, says="1 run waits for answers")


def test_queued_runs_that_no_worker_takes_are_named(hf: Holdfast, target: str) -> None:
    hf.runs.start("report", run_id="new")
    assert said(hf)["queued runs"].says == "none is left without a worker"
    with holdfast.open(target, clock=FrozenClock()) as then:
        then.runs.start("report", run_id="old")
        then.runs.start("report", run_id="later", not_before=datetime(2100, 1, 1, tzinfo=UTC))

    assert unwell(hf) == {"queued runs": "no worker takes them: 1 of report"}

    with asking(target) as ask:
        ask("update runs set definition_version = '2' where id = 'old'")
    assert unwell(hf) == {"queued runs": "no worker takes them: 1 of report 2"}
    hf.runs.cancel("old")
    assert unwell(hf) == {}


class TestOfDurableMemory:
    def test_a_counter_that_is_wrong_is_named(self, hf: Holdfast, target: str) -> None:
        hf.durable("agent_7").set("a", "x", category="core")
        with asking(target) as ask:
            ask("update durable_agents set entries = 9 where agent = 'agent_7'")

        assert unwell(hf).keys() == {"durable counters"}

    def test_what_has_been_over_for_days_and_is_still_there_is_named(
        self, hf: Holdfast, target: str
    ) -> None:
        with holdfast.open(target, clock=FrozenClock()) as then:
            then.durable("agent_7").set("a", "x", category="daily")
            then.durable("agent_7").run("one")

        (check,) = unwell(hf).items()
        assert check[0] == "durable sweep"
        assert check[1].startswith("1 entries and 1 runs are over and still there, for ")

        hf.sweep()
        assert hf.engine.scrub().done
        assert unwell(hf) == {}
        assert said(hf)["durable sweep"].says == "nothing has expired"


class TestOfAFile:
    @pytest.fixture
    def engine_name(self) -> str:
        return "sqlite"

    def test_every_row_that_is_promised_is_there(self, hf: Holdfast) -> None:
        assert {
            *(
                "database",
                "storage",
                "schema",
                "durability",
                "file system",
                "free space",
                "log",
                "pragmas",
            ),
            *("other processes", "readers", "erasure", "clock", *LONGTERM, "thread counters"),
            *("durable counters", "durable sweep", "questions", "queued runs"),
        } == said(hf).keys()

    def test_a_schema_number_that_is_not_the_migrations_is_named(
        self, hf: Holdfast, target: str
    ) -> None:
        with asking(target) as ask:
            ask("pragma user_version = 7")

        assert unwell(hf).keys() == {"schema"}
        assert said(hf)["schema"].says.startswith("7, by its migrations 1")

    def test_a_log_that_grew_is_named(self, hf: Holdfast, target: str) -> None:
        fill(hf)
        os.truncate(f"{target}-wal", 70 << 20)

        assert unwell(hf) == {"log": "70.0 MiB"}

    def test_a_reader_that_holds_a_moment_is_named(self, hf: Holdfast) -> None:
        over, named = threading.Event(), threading.Event()
        reader = threading.Thread(
            target=lambda: hf.engine.read(lambda _: over.wait(30)), name="slow-report"
        )
        reader.start()

        for _ in range(600):
            if "slow-report for " in said(hf)["readers"].says:
                named.set()
                break
            named.wait(0.05)
        over.set()
        reader.join()

        assert named.is_set()
        assert unwell(hf) == {}

    @pytest.mark.parametrize(
        ("statement", "doing"),
        [("select 1", "open"), ("select * from stores", "reads"), ("begin immediate", "writes")],
    )
    def test_another_process_is_named_with_what_it_does(
        self, hf: Holdfast, target: str, statement: str, doing: str
    ) -> None:
        fill(hf)
        code = (
            "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute('pragma user_version');"
            " k = c.execute(sys.argv[2]); next(k, None); print('there', flush=True);"
            " sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, target, statement],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"there\n"
            says = said(hf)["other processes"].says
            other.communicate(b"")

        # Only Linux tells who holds a lock.
        named = rf"{other.pid} \(python\S*\) {doing}"
        assert re.fullmatch(named if sys.platform == "linux" else "none that is known", says)
        assert holders(target) == []

    def test_one_that_is_gone_is_named(self, hf: Holdfast, target: str) -> None:
        Path(target).rename(f"{target}.away")

        assert unwell(hf).keys() == {"database"}
        Path(f"{target}.away").rename(target)


class TestOfAServer:
    @pytest.fixture
    def engine_name(self) -> str:
        return "postgres"

    def test_every_row_that_is_promised_is_there(self, hf: Holdfast) -> None:
        found = said(hf)

        assert {
            *("database", "storage", "schema", "durability", "role", "row security", "extensions"),
            *("forgetting", "readers", "erasure", "clock", *LONGTERM, "thread counters"),
            *("durable counters", "durable sweep", "questions", "queued runs"),
        } == found.keys()
        assert found["role"].says == "holdfast_app, which owns 0 tables"
        assert "plpgsql" in found["extensions"].says
        assert "archive_mode = off" in found["forgetting"].says
        assert "standbys" in found["forgetting"].says

    @pytest.mark.parametrize(
        ("statement", "says"),
        [
            (
                "alter table holdfast.stores no force row level security",
                "stores is not forced",
            ),
            (
                "drop policy its_workspace on holdfast.versions",
                "versions has no policy its_workspace",
            ),
            (
                "drop policy its_agent on holdfast.durable_entries",
                "durable_entries has no policy its_agent",
            ),
            (
                "create policy anybody on holdfast.api_keys using (true)",
                "api_keys has a policy anybody that is not ours",
            ),
            (
                "alter policy its_workspace on holdfast.stores using (true)",
                "stores has no policy its_workspace",
            ),
        ],
    )
    def test_a_table_that_is_not_held_apart_is_named(
        self, hf: Holdfast, target: str, statement: LiteralString, says: str
    ) -> None:
        with psycopg.connect(target, autocommit=True) as admin:
            admin.execute(statement)

        assert unwell(hf) == {"row security": f"not as it should be: {says}"}

    def test_commits_that_are_not_synced_are_named(self, hf: Holdfast, target: str) -> None:
        with psycopg.connect(target, autocommit=True) as admin:
            admin.execute("alter role postgres set synchronous_commit = off")
        try:
            with opened(f"{target}&durability=off") as again:
                assert unwell(again).keys() == {"durability"}
        finally:
            with psycopg.connect(target, autocommit=True) as admin:
                admin.execute("alter role postgres reset synchronous_commit")
        assert unwell(hf) == {}
