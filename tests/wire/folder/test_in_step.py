"""The SDK's folder sync, with a session token, while nobody disagrees."""

import pytest
from wire.folder.synced import BEGIN, Attach, Synced

pytestmark = pytest.mark.anyio


async def test_a_download_brings_every_memory(synced: Synced) -> None:
    assert synced.files() == BEGIN


async def test_a_download_walks_all_pages(attach: Attach) -> None:
    many = {f"/{n % 3}/{n:02}.md": f"{n}\r\n" for n in range(45)} | {"/ünï cødé.md": "", "/e": "😀"}

    synced = await attach(many)

    assert synced.files() == many


async def test_an_edit_becomes_a_version_by_the_session(synced: Synced) -> None:
    before = await synced.history()

    (synced.folder / "name.md").write_text("Ada Lovelace")
    await synced.sync()

    assert await synced.contents() == {**BEGIN, "/name.md": "Ada Lovelace"}
    assert await synced.history() == [*before, ("modified", "/name.md", synced.session_actor())]


async def test_a_new_file_becomes_a_memory(synced: Synced) -> None:
    before = await synced.history()
    new = synced.folder / "a" / "b" / "new one.md"
    new.parent.mkdir(parents=True)

    new.write_text("")
    await synced.sync()

    assert await synced.contents() == {**BEGIN, "/a/b/new one.md": ""}
    assert (await synced.history())[len(before) :] == [
        ("created", "/a/b/new one.md", synced.session_actor())
    ]


async def test_a_deleted_file_is_deleted_once_that_is_certain(synced: Synced) -> None:
    (synced.folder / "name.md").unlink()

    await synced.sync()
    after_one = await synced.contents()
    await synced.sync()

    assert after_one == BEGIN
    assert await synced.contents() == {"/style/tabs.md": "Tabs.\n"}
    assert (await synced.history())[-1] == ("deleted", "/name.md", synced.session_actor())


async def test_what_others_change_make_and_move_is_pulled(synced: Synced) -> None:
    await synced.edit_there("/name.md", "Grace")
    await synced.create_there("/new.md", "x")
    tabs = (await synced.memories())["/style/tabs.md"]
    await synced.there.beta.memory_stores.memories.update(
        tabs.id, memory_store_id=synced.store_id, path="/tabs.md"
    )

    await synced.sync()

    assert synced.files() == {"/name.md": "Grace", "/new.md": "x", "/tabs.md": "Tabs.\n"}


async def test_what_others_delete_is_deleted_here(synced: Synced) -> None:
    name = (await synced.memories())["/name.md"]
    await synced.there.beta.memory_stores.memories.delete(name.id, memory_store_id=synced.store_id)

    await synced.sync()

    assert synced.files() == {"/style/tabs.md": "Tabs.\n"}


async def test_nothing_changed_is_nothing_written(synced: Synced) -> None:
    before = await synced.history()

    for _ in range(3):
        await synced.sync()
    await synced.stores.finish()
    await synced.stores.flush_writes()

    assert await synced.history() == before
    assert synced.files() == BEGIN


async def test_the_last_sync_keeps_everything_and_clears_the_folder(synced: Synced) -> None:
    (synced.folder / "name.md").unlink()
    (synced.folder / "new.md").write_text("x")

    await synced.stores.finish()
    await synced.stores.dispose()

    assert await synced.contents() == {"/new.md": "x", "/style/tabs.md": "Tabs.\n"}
    assert not synced.folder.exists()


async def test_a_run_that_breaks_off_still_saves_what_was_written(synced: Synced) -> None:
    (synced.folder / "name.md").write_text("Ada Lovelace")
    for n in range(40):
        (synced.folder / f"{n:02}.md").write_text(str(n))

    await synced.stores.flush_writes()

    contents = await synced.contents()
    assert contents["/name.md"] == "Ada Lovelace"
    assert [contents[f"/{n:02}.md"] for n in range(40)] == [str(n) for n in range(40)]
