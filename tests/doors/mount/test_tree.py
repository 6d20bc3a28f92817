"""Names in directories, and heads put where they belong, whatever order they are told in."""

from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.doors.mount.filesystem.nodes import Buffer, Directory, File, Nodes, NoKernel
from holdfast.doors.mount.filesystem.tree import HeadTable, Tree
from holdfast.doors.mount.names import Kind
from holdfast.memories.stores.records import Memory, Snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Telling(NoKernel):
    """Writes down which names are to be forgotten."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def forget_name(self, directory: str, name: str) -> None:
        self.names.append(f"{directory}/{name}")


class Shown:
    """A tree and its heads."""

    def __init__(self) -> None:
        self.nodes: Nodes = {}
        self.kernel = Telling()
        self.tree = Tree(
            "/notes", self.nodes, inodes=count(2), kernel=lambda: self.kernel, now=lambda: NOW
        )
        self.hidden: list[str] = []
        self.heads = HeadTable(self.tree, kernel=lambda: self.kernel, on_hidden=self.hidden.append)

    def paths(self) -> list[str]:
        """Return the path of every file, and of every directory with a slash behind."""
        return sorted(
            path.removeprefix("/notes") + "/" * isinstance(node, Directory)
            for path, node in self.nodes.items()
            if node is not self.tree.root
        )

    def file(self, path: str) -> File:
        node = self.nodes[f"/notes{path}"]
        assert isinstance(node, File)
        return node

    def new(self, path: str, kind: Kind = Kind.PLAIN) -> File:
        """Make a file that the store does not have."""
        file = self.tree.new_file(f"/notes{path}", kind)
        file.buffer = Buffer(b"", NOW)
        file.buffer.unsaved = True
        self.tree.attach(file, file.path)
        return file


def memory(path: str, id: str = "1", version: str = "1", content: str = "x") -> Memory:
    return Memory(
        id=f"mem_{id}",
        memory_store_id="memstore_1",
        memory_version_id=f"memver_{id}_{version}",
        path=path,
        content=None,
        content_sha256=content * 64,
        content_size_bytes=len(content),
        created_at=NOW,
        updated_at=NOW,
    )


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_a_memory_brings_its_directories_and_takes_them_along(shown: Shown) -> None:
    shown.heads.learn(memory("/a/b/c.md"), 1)
    assert shown.paths() == ["/a/", "/a/b/", "/a/b/c.md"]

    shown.heads.lose("mem_1", 2)
    assert shown.paths() == []
    assert shown.kernel.names == ["/notes/a/b/c.md", "/notes/a/b", "/notes/a"]


def test_a_directory_made_here_stays(shown: Shown) -> None:
    shown.tree.make("/notes/a", local=True)
    shown.heads.learn(memory("/a/b.md"), 1)
    shown.heads.lose("mem_1", 2)

    assert shown.paths() == ["/a/"]


def test_a_directory_stays_once_its_last_file_is_removed_here(shown: Shown) -> None:
    shown.heads.learn(memory("/a/b.md"), 1)
    shown.tree.detach(shown.file("/a/b.md"), here=True)

    assert shown.paths() == ["/a/"]


def test_a_directory_does_not_stay_because_a_file_in_it_was_renamed_here(shown: Shown) -> None:
    shown.heads.learn(memory("/a/b.md"), 1)
    shown.tree.move(shown.file("/a/b.md"), "/notes/a/c.md", here=True)
    shown.heads.lose("mem_1", 2)

    assert shown.paths() == []


def test_a_memory_renamed_elsewhere_keeps_its_file(shown: Shown) -> None:
    shown.heads.learn(memory("/a.md"), 1)
    file = shown.file("/a.md")
    shown.heads.learn(memory("/b/a.md", version="2"), 2)

    assert shown.file("/b/a.md") is file
    assert shown.paths() == ["/b/", "/b/a.md"]


@pytest.mark.parametrize(("old", "new"), [("/a", "/a/b"), ("/a/b", "/a"), ("/a/b", "/a/c")])
def test_a_memory_moves_below_and_above_itself(shown: Shown, old: str, new: str) -> None:
    shown.heads.learn(memory(old), 1)
    shown.heads.learn(memory(new, version="2"), 2)

    assert [path for path in shown.paths() if not path.endswith("/")] == [new]
    assert shown.tree.at("/notes/a") is not None


def test_two_memories_that_change_places_are_both_there(shown: Shown) -> None:
    for id, path in ("1", "/a"), ("2", "/b"):
        shown.heads.learn(memory(path, id), 1)
    first, second = shown.file("/a"), shown.file("/b")
    shown.heads.learn(memory("/a", "2", "2"), 3)
    shown.heads.learn(memory("/b", "1", "3"), 4)

    assert (shown.file("/a"), shown.file("/b")) == (second, first)


def test_what_is_told_late_undoes_nothing(shown: Shown) -> None:
    shown.heads.learn(memory("/b", version="2"), 5)
    shown.heads.learn(memory("/a", version="1"), 4)
    assert shown.paths() == ["/b"]

    shown.heads.lose("mem_1", 6)
    shown.heads.learn(memory("/b", version="2"), 5)
    assert shown.paths() == []


def test_a_memory_restored_under_its_id_is_there_again(shown: Shown) -> None:
    shown.heads.learn(memory("/a"), 1)
    shown.heads.lose("mem_1", 2)
    shown.heads.learn(memory("/a", version="2"), 3)

    assert shown.paths() == ["/a"]


def test_a_new_file_becomes_the_memory_that_appears_at_its_path(shown: Shown) -> None:
    file = shown.new("/a.md")
    shown.heads.learn(memory("/a.md"), 1)

    assert shown.file("/a.md") is file
    assert file.memory == memory("/a.md")


@pytest.mark.parametrize(
    ("local", "appears"), [("/a/b.md", "/a"), ("/a", "/a/b.md"), ("/.a.swp", "/.a.swp")]
)
def test_a_memory_is_hidden_while_a_file_of_this_mount_is_in_its_place(
    shown: Shown, local: str, appears: str
) -> None:
    file = shown.new(local, Kind.SCRATCH if local.endswith(".swp") else Kind.PLAIN)
    shown.heads.learn(memory(appears), 1)
    assert shown.hidden == ["mem_1"]
    assert len(shown.heads) == 1

    shown.tree.detach(file, here=True)
    shown.heads.reconsider()
    assert shown.file(appears).memory == memory(appears)


def test_a_memory_that_appears_at_the_old_path_of_a_file_being_renamed_is_shown(
    shown: Shown,
) -> None:
    file = shown.new("/a.md")
    shown.heads.learn(memory("/a.md", "2"), 5)
    shown.tree.move(file, "/notes/b.md", here=True)
    shown.heads.own(file, memory("/b.md"), 6)

    assert shown.paths() == ["/a.md", "/b.md"]
    assert shown.file("/a.md").memory == memory("/a.md", "2")
    assert shown.file("/b.md").memory == memory("/b.md")


def test_a_memory_takes_the_place_of_an_empty_directory(shown: Shown) -> None:
    shown.tree.make("/notes/a/b", local=True)
    shown.heads.learn(memory("/a"), 1)

    assert shown.paths() == ["/a"]


def test_a_memory_of_a_long_name_is_hidden_and_told_once(shown: Shown) -> None:
    shown.heads.learn(memory("/" + "x" * 256), 1)
    shown.heads.learn(memory("/" + "x" * 256, version="2"), 2)
    assert shown.hidden == ["mem_1"]

    shown.heads.learn(memory("/short", version="3"), 3)
    assert shown.paths() == ["/short"]


def test_what_a_snapshot_does_not_have_is_gone_unless_it_is_newer(shown: Shown) -> None:
    shown.heads.learn(memory("/a", "1"), 1)
    shown.heads.learn(memory("/b", "2"), 7)
    snapshot = Snapshot(seq=5, memories=(memory("/c", "3"),), cap=10, archived_at=None)
    shown.heads.resync(snapshot)

    assert shown.paths() == ["/b", "/c"]


def test_a_directory_carried_takes_everything_along(shown: Shown) -> None:
    for id, path in ("1", "/a/b/c"), ("2", "/a/d"):
        shown.heads.learn(memory(path, id), 1)
    inodes = {node.inode for node in shown.nodes.values()}
    directory = shown.tree.at("/notes/a")
    assert isinstance(directory, Directory)
    shown.tree.carry(directory, "/notes/e/f")

    assert shown.paths() == ["/e/", "/e/f/", "/e/f/b/", "/e/f/b/c", "/e/f/d"]
    assert inodes < {node.inode for node in shown.nodes.values()}


Place = st.sampled_from(["/a", "/b", "/a/b", "/a/c", "/d/e/f", "/d/e", "/d"])


@given(st.lists(st.tuples(st.sampled_from("123"), Place | st.none()), max_size=30))
def test_the_tree_is_the_store_after_every_history(steps: list[tuple[str, str | None]]) -> None:
    """Heads come as a feed tells them: each memory once in a batch, as it is by then."""
    shown, store, told = Shown(), dict[str, tuple[str, int]](), dict[str, int]()
    for seq, (id, path) in enumerate(steps, 1):
        others = [taken for other, (taken, _) in store.items() if other != id]
        if path is None:
            store.pop(id, None)
        elif any(f"{path}/".startswith(f"{o}/") or f"{o}/".startswith(f"{path}/") for o in others):
            continue
        else:
            store[id] = (path, seq)
        told[id] = seq
        if seq % 3 == 0:
            tell(shown, store, told)
    tell(shown, store, told)

    files = [path for path in shown.paths() if not path.endswith("/")]
    assert files == sorted(path for path, _ in store.values())


def tell(shown: Shown, store: dict[str, tuple[str, int]], told: dict[str, int]) -> None:
    for id, seq in sorted(told.items(), key=lambda each: each[1]):
        if id in store:
            shown.heads.learn(memory(store[id][0], id, str(seq)), seq)
        else:
            shown.heads.lose(f"mem_{id}", seq)
    told.clear()
