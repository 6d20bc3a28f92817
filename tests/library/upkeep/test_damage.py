"""Storage that is damaged: a finding among others, and no crash."""

import os
from pathlib import Path

import pytest
from contracts.stores import written
from library.upkeep.meddling import Ask, asking, checks, fill, opened

from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.doctor import doctor


def overwrite(file: Path, table: str) -> None:
    """Write random bytes over the first page of *table* in the database *file*."""
    with asking(str(file)) as ask:
        (root,) = ask("select rootpage from sqlite_schema where name = ?", table)[0]
        (size,) = ask("pragma page_size")[0]
    with file.open("r+b") as database:
        database.seek((root - 1) * size)
        database.write(os.urandom(size))


class TestDamage:
    def test_a_page_that_was_overwritten_is_a_finding(self, sqlite_file: Path) -> None:
        with opened(sqlite_file) as hf:
            fill(hf)
        overwrite(sqlite_file, "versions")

        with opened(sqlite_file) as hf:
            findings = hf.verify().findings

        assert {each.check for each in findings} == {"storage"}

    @pytest.mark.parametrize("table", ["versions", "durable_agents", "memories", "migrations"])
    def test_the_doctor_names_a_page_that_was_overwritten(
        self, sqlite_file: Path, table: str
    ) -> None:
        with opened(sqlite_file) as hf:
            fill(hf)
            overwrite(sqlite_file, table)

            found = {each.name: each for each in doctor(hf)}

        assert found.keys() == {"database", "storage"}
        assert found["database"].ok
        assert not found["storage"].ok
        assert "holdfast restore" in found["storage"].says

    def test_an_index_without_a_row_is_a_finding_unless_one_is_quick(
        self, sqlite_file: Path
    ) -> None:
        with opened(sqlite_file) as hf:
            fill(hf)
        with asking(str(sqlite_file)) as ask:
            ask("pragma writable_schema = on")
            (index,) = ask("select * from sqlite_schema where name = 'stores_by_age'")
            ask("delete from sqlite_schema where name = 'stores_by_age'")
        with asking(str(sqlite_file)) as ask:
            ask("delete from store_settings")
            ask("update stores set created_at = created_at + 1")
            ask("pragma writable_schema = on")
            ask("insert into sqlite_schema values (?, ?, ?, ?, ?)", *index)

        with opened(sqlite_file) as hf:
            assert checks(hf) == {("storage", "")}
            assert checks(hf, quick=True) == set()

    def test_what_others_wrote_meanwhile_is_no_damage(self, sqlite_file: Path) -> None:
        with opened(sqlite_file) as hf, opened(sqlite_file) as other:
            store = fill(hf)
            assert hf.verify().ok
            written(other, store, *(f"/more/{number}" for number in range(40)))

            assert hf.verify().ok


class TestDamageOnAServer:
    @pytest.fixture
    def engine_name(self) -> str:
        return "postgres"

    def test_a_row_that_the_primary_key_misses_is_a_finding(self, hf: Holdfast, ask: Ask) -> None:
        ready = (
            "update pg_index set indisready = ?"
            " where indexrelid = cast('api_keys_pkey' as regclass)"
        )
        ask(ready, False)
        ask(
            "insert into api_keys (id, workspace, name, scope, secret_hash, created_at)"
            " values ('apikey_x', 'w', 'n', 'read', 'h', 1)"
        )
        ask(ready, True)

        (finding,) = hf.verify().findings

        assert (finding.check, finding.table) == ("storage", "api_keys")
        assert (finding.expected, finding.found) == ("5 by row", "4 by key")
        storage = {each.name: each for each in doctor(hf)}["storage"]
        assert not storage.ok
        assert "api_keys: 4 by key" in storage.says

    def test_what_amcheck_finds_is_a_finding(self, hf: Holdfast, ask: Ask) -> None:
        ask(
            """
            create function public.bt_index_check(index regclass, heapallindexed boolean)
            returns void language plpgsql as $$ begin
                if index = cast('holdfast.versions_pkey' as regclass) then
                    raise exception 'damaged' using errcode = 'index_corrupted';
                end if;
            end $$
            """
        )
        unlisted = hf.verify()
        ask(
            "insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable,"
            " extversion) values (99999, 'amcheck', 10, 2200, true, '1.4')"
        )
        ask("alter extension amcheck add function public.bt_index_check(regclass, boolean)")

        findings = hf.verify().findings

        assert unlisted.ok
        assert [(each.check, each.table) for each in findings] == [("storage", "versions_pkey")]
