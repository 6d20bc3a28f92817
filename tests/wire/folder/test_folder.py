"""The SDK's folder sync with a session token: in agreement, and in conflict."""

from collections.abc import Awaitable, Callable
from shutil import rmtree
from typing import Any

import pytest
from anthropic.lib.tools._memories import MARKER_PATH
from wire.folder.synced import BEGIN, Attach, Synced
from wire.serving import Served

pytestmark = pytest.mark.anyio


MEMORY = "/v1/memory_stores/{s}/memories/{m}"
MEMORIES = "/v1/memory_stores/{s}/memories"


async def test_of_two_edits_the_server_s_stays(
    synced: Synced, caplog: pytest.LogCaptureFixture
) -> None:
    await synced.edit_there("/name.md", "Theirs")
    (synced.folder / "name.md").write_text("Ours")

    await synced.sync()

    assert synced.files() == await synced.contents() == {**BEGIN, "/name.md": "Theirs"}
    assert "changed both locally and remotely" in caplog.text


async def test_an_edit_that_comes_in_between_is_never_overwritten(
    synced: Synced, server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    (synced.folder / "name.md").write_text("Ours")
    before_the_update(synced, lambda: synced.edit_there("/name.md", "Theirs"))
    before = server.asked()

    await synced.sync()
    after_the_race = await synced.contents()
    await synced.sync()

    assert after_the_race["/name.md"] == "Theirs"
    assert synced.files()["/name.md"] == "Theirs"
    assert (server.asked() - before)[MEMORY, "POST", 409] == 1
    assert "the upload was refused" in caplog.text


async def test_a_deletion_that_comes_in_between_does_not_lose_the_edit(synced: Synced) -> None:
    name = (await synced.memories())["/name.md"]

    async def delete() -> None:
        await synced.there.beta.memory_stores.memories.delete(
            name.id, memory_store_id=synced.store_id
        )

    (synced.folder / "name.md").write_text("Ours")
    before_the_update(synced, delete)

    await synced.sync()

    memory = (await synced.memories())["/name.md"]
    assert (memory.content, memory.id == name.id) == ("Ours", False)


def before_the_update(synced: Synced, act: Callable[[], Awaitable[Any]]) -> None:
    """Let *act* come in after the sync has looked, and before it writes."""
    memories = synced.here.beta.memory_stores.memories
    update = memories.update

    async def act_then_update(*given: Any, **named: Any) -> Any:
        memories.update = update
        await act()
        return await update(*given, **named)

    memories.update = act_then_update


async def test_a_file_deleted_here_and_edited_there_comes_back(synced: Synced) -> None:
    (synced.folder / "name.md").unlink()
    await synced.sync()
    await synced.edit_there("/name.md", "Theirs")

    await synced.sync()
    await synced.sync()

    assert synced.files()["/name.md"] == (await synced.contents())["/name.md"] == "Theirs"


@pytest.mark.parametrize(
    ("size", "status"), [(102_401, 400), (2 * 1024 * 1024, 413)], ids=["content", "body"]
)
async def test_a_file_too_large_is_told_of_once_and_the_others_go_on(
    synced: Synced, server: Served, caplog: pytest.LogCaptureFixture, size: int, status: int
) -> None:
    (synced.folder / "large.md").write_text("x" * size)
    (synced.folder / "small.md").write_text("y")
    before = server.asked()

    await synced.sync()
    await synced.sync()

    assert await synced.contents() == {**BEGIN, "/small.md": "y"}
    assert (server.asked() - before)[MEMORIES, "POST", status] == 1
    assert caplog.text.count("the server rejected this memory file") == 1


async def test_a_file_that_fits_again_is_taken(synced: Synced) -> None:
    (synced.folder / "large.md").write_text("x" * 102_401)
    await synced.sync()

    (synced.folder / "large.md").write_text("x" * 102_400)
    await synced.sync()

    assert (await synced.memories())["/large.md"].content_size_bytes == 102_400


async def test_a_name_that_is_no_legal_path_is_left_on_disk(
    synced: Synced, caplog: pytest.LogCaptureFixture
) -> None:
    (synced.folder / "bell\a.md").write_text("x")

    await synced.sync()

    assert await synced.contents() == BEGIN
    assert "the server rejected this memory file" in caplog.text


async def test_a_store_attached_to_be_read_is_pulled_and_never_pushed(attach: Attach) -> None:
    synced = await attach(access="read_only")
    before = await synced.history()
    (synced.folder / "name.md").write_text("Ours")
    (synced.folder / "new.md").write_text("x")
    (synced.folder / "style" / "tabs.md").unlink()
    await synced.edit_there("/style/tabs.md", "Spaces.")

    await synced.sync()
    await synced.stores.finish()
    await synced.stores.flush_writes()

    assert await synced.contents() == {**BEGIN, "/style/tabs.md": "Spaces."}
    assert len(await synced.history()) == len(before) + 1
    assert synced.stores.read_only_roots == [synced.folder]


async def test_a_folder_that_was_wiped_is_downloaded_again(
    synced: Synced, caplog: pytest.LogCaptureFixture
) -> None:
    before = await synced.history()

    rmtree(synced.folder)
    await synced.sync()
    without_folder = synced.files()
    for path in BEGIN:
        (synced.folder / path[1:]).unlink()
    await synced.sync()

    assert without_folder == synced.files() == BEGIN
    assert await synced.history() == before
    assert caplog.text.count("re-downloading") == 2


async def test_a_folder_without_its_marker_touches_nothing(synced: Synced) -> None:
    (synced.folder / MARKER_PATH).unlink()
    (synced.folder / "name.md").write_text("Ours")
    (synced.folder / "style" / "tabs.md").unlink()

    await synced.sync()
    await synced.stores.finish()

    assert await synced.contents() == BEGIN


async def test_the_marker_s_own_name_is_never_a_memory(synced: Synced) -> None:
    await synced.sync()

    assert f"/{MARKER_PATH}" not in await synced.contents()


async def test_when_the_session_ends_its_token_writes_no_more(
    synced: Synced, caplog: pytest.LogCaptureFixture
) -> None:
    (synced.folder / "name.md").write_text("Ours")
    await synced.there.beta.sessions.archive(synced.session_id)

    await synced.sync()
    await synced.stores.flush_writes()

    assert await synced.contents() == BEGIN
    assert synced.files()["/name.md"] == "Ours"
    assert "401" in caplog.text


async def test_an_archived_store_is_read_and_not_written(synced: Synced) -> None:
    await synced.there.beta.memory_stores.archive(synced.store_id)
    (synced.folder / "new.md").write_text("x")

    await synced.sync()
    await synced.sync()

    assert await synced.contents() == BEGIN
    assert synced.files() == {**BEGIN, "/new.md": "x"}


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
