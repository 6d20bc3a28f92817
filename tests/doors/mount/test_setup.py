"""Which stores a mount shows, under which names, how far, and as whom they are written."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.doors.mount.process.setup import MountRequest, mount_request
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import JSONObject, SessionRecord, Store
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import Server, new_workspace, serving


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def store(hf: Holdfast, name: str = "Notes") -> Store:
    return hf.memory_stores.create(name=name)


def session(hf: Holdfast, *stores: Store, read_only: tuple[Store, ...] = ()) -> SessionRecord:
    resources: list[JSONObject] = [
        {
            "type": "memory_store",
            "memory_store_id": each.id,
            "access": "read_only" if each in read_only else "read_write",
        }
        for each in stores
    ]
    return hf.sessions.create(agent="agent_7", environment_id="laptop", resources=resources)


def shown(found: MountRequest) -> dict[str, str]:
    return {part.slug: part.resource.access for part in found.stores}


class TestWithoutASession:
    def test_stores_are_named_by_id_or_name_and_keep_their_order(self, hf: Holdfast) -> None:
        rules, notes = store(hf, "Team rules"), store(hf)

        found = mount_request(hf, session=None, stores=[notes.id, "Team rules"])

        assert shown(found) == {"notes": "read_write", "team-rules": "read_write"}
        assert [part.store for part in found.stores] == [notes, rules]
        assert found.session_id is None
        assert found.hf is hf

    def test_a_slug_that_is_taken_borrows_from_the_id(self, hf: Holdfast) -> None:
        first, second = store(hf), store(hf, "notes!")

        found = mount_request(hf, session=None, stores=[first.id, second.id])

        assert [part.slug for part in found.stores] == ["notes", f"notes-{second.id[-6:].lower()}"]

    def test_an_archived_store_can_be_read(self, hf: Holdfast) -> None:
        hf.memory_stores.archive(store(hf).id)

        assert shown(mount_request(hf, session=None, stores=["Notes"])) == {"notes": "read_only"}

    def test_nothing_is_written_where_that_was_asked_for(self, hf: Holdfast) -> None:
        store(hf)

        found = mount_request(hf, session=None, stores=["Notes"], read_only=True)

        assert shown(found) == {"notes": "read_only"}

    def test_a_name_that_several_have_lists_their_ids(self, hf: Holdfast) -> None:
        ids = {store(hf).id, store(hf).id}

        with pytest.raises(InvalidInput) as refused:
            mount_request(hf, session=None, stores=["Notes"])

        assert all(id in str(refused.value) for id in ids)

    @pytest.mark.parametrize("wanted", ["notse", "NOTES", "team"])
    def test_a_name_that_nobody_has_names_the_nearest(self, hf: Holdfast, wanted: str) -> None:
        store(hf, "Notes")
        store(hf, "Team rules")
        nearest = "Team rules" if wanted == "team" else "Notes"

        with pytest.raises(NotFound, match=f"The nearest is '{nearest}'"):
            mount_request(hf, session=None, stores=[wanted])

    def test_one_named_twice_is_told(self, hf: Holdfast) -> None:
        notes = store(hf)

        assert mount_request(hf, session=None, stores=["Notes", notes.id]).repeated() is not None
        assert mount_request(hf, session=None, stores=["Notes"]).repeated() is None


class TestOfASession:
    def test_everything_attached_is_shown_as_it_is_attached(self, hf: Holdfast) -> None:
        notes, rules = store(hf), store(hf, "Team rules")
        made = session(hf, notes, rules, read_only=(rules,))

        found = mount_request(hf, session=made.id, stores=[])

        assert shown(found) == {"notes": "read_write", "team-rules": "read_only"}
        assert found.session_id == made.id
        assert found.hf.actor == Actor.session(made.id)

    def test_slugs_are_those_of_the_session_also_for_a_part_of_it(self, hf: Holdfast) -> None:
        first, second = store(hf), store(hf)
        made = session(hf, first, second)

        found = mount_request(hf, session=made.id, stores=[second.id])

        assert list(shown(found)) == [made.resources[1].mount_path.rpartition("/")[2]]

    def test_a_store_renamed_since_is_still_known_as_agreed(self, hf: Holdfast) -> None:
        notes = store(hf)
        made = session(hf, notes)
        hf.memory_stores.update(notes.id, name="Diary")

        assert list(shown(mount_request(hf, session=made.id, stores=["Notes"]))) == ["notes"]

    def test_a_store_that_is_not_attached_is_not_there(self, hf: Holdfast) -> None:
        made = session(hf, store(hf))
        other = store(hf, "Other")

        for named in ("Other", other.id):
            with pytest.raises(NotFound, match="The nearest is 'Notes'"):
                mount_request(hf, session=made.id, stores=[named])

    def test_one_deleted_since_is_left_out_and_said(self, hf: Holdfast) -> None:
        notes, rules = store(hf), store(hf, "Team rules")
        made = session(hf, notes, rules)
        hf.memory_stores.delete(notes.id)

        found = mount_request(hf, session=made.id, stores=[])

        assert list(shown(found)) == ["team-rules"]
        assert notes.id in found.warnings[0]

    def test_one_that_is_archived_is_refused_as_such(self, hf: Holdfast) -> None:
        made = session(hf, store(hf))
        hf.sessions.archive(made.id)

        with pytest.raises(InvalidInput, match="is archived"):
            mount_request(hf, session=made.id, stores=[])

    def test_one_that_attaches_nothing_is_refused(self, hf: Holdfast) -> None:
        with pytest.raises(InvalidInput, match="attaches no memory store"):
            mount_request(hf, session=session(hf).id, stores=[])

    def test_a_handle_that_is_a_session_s_names_none(self, hf: Holdfast) -> None:
        made = session(hf, store(hf))
        other = session(hf, store(hf, "Other"))

        found = mount_request(hf.for_session(made.id), session=None, stores=[])

        assert found.session_id == made.id
        with pytest.raises(NotPermitted):
            mount_request(hf.for_session(made.id), session=other.id, stores=[])


class TestOverHTTP:
    """A server closes to all without a key once one is made: so it has a server of its own."""

    @pytest.fixture
    def server(self, hf: Holdfast) -> Iterator[Server]:
        clock = FrozenClock()
        with serving(hf, clock=clock) as url:
            yield Server(url, hf, clock)

    def test_a_key_that_may_makes_a_token_and_revokes_it_at_the_end(self, server: Server) -> None:
        here = server.hf.acting(workspace=new_workspace())
        made = session(here, store(here))
        key = here.keys.create("ci", scope="write", workspace=here.workspace)
        assert key.secret is not None

        with holdfast.open(server.url, api_key=key.secret) as hf:
            found = mount_request(hf, session=made.id, stores=[])
            assert found.hf.actor == Actor.session(made.id)
            assert len(here.sessions.list_tokens(made.id)) == 1

        assert here.sessions.list_tokens(made.id) == []

    def test_a_key_that_may_not_reads_and_says_so(self, server: Server) -> None:
        here = server.hf.acting(workspace=new_workspace())
        made = session(here, store(here))
        key = here.keys.create("ci", scope="read", workspace=here.workspace)

        with holdfast.open(server.url, api_key=key.secret) as hf:
            found = mount_request(hf, session=made.id, stores=[])

        assert shown(found) == {"notes": "read_only"}
        assert "read-only" in found.warnings[0]

    def test_a_token_knows_its_session(self, server: Server) -> None:
        here = server.hf.acting(workspace=new_workspace())
        made = session(here, store(here))
        token = here.sessions.create_token(made.id)

        with holdfast.open(server.url, api_key=token.token) as hf:
            found = mount_request(hf, session=None, stores=[])

        assert found.session_id == made.id
        assert shown(found) == {"notes": "read_write"}
