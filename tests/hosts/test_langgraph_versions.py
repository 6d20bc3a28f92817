"""What a memory store adds to LangGraph's: root, versions, restore, and forget for good."""

from pathlib import Path

import pytest

import holdfast
from holdfast.doors.adapters.langgraph import HoldfastStore
from holdfast.errors import ContentGone, InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast

NS = ("users", "ada")


def store_id(hf: Holdfast) -> str:
    [only] = hf.memory_stores.list().data
    return only.id


# Root.


def test_a_root_is_put_before_every_namespace_and_taken_off_every_answer(hf: Holdfast) -> None:
    ada = HoldfastStore(hf, root=NS)
    ada.put(("notes",), "k", {"text": "tabs"})

    item = HoldfastStore(hf).get((*NS, "notes"), "k")
    assert item is not None
    assert item.namespace == (*NS, "notes")
    assert [each.namespace for each in ada.search(())] == [("notes",)]
    assert [each.namespace for each in ada.search((), query="tabs")] == [("notes",)]
    assert ada.list_namespaces() == [("notes",)]
    assert ada.restore(ada.history(("notes",), "k")[0].id).namespace == ("notes",)


def test_nothing_outside_of_a_root_is_reached(hf: Holdfast) -> None:
    ada, everything = HoldfastStore(hf, root=NS), HoldfastStore(hf)
    for other in [("users", "ada2"), ("users", "bob"), ("users",), ("ada",)]:
        everything.put((*other, "notes"), "k", {"text": "tabs"})
    [bobs, *_] = everything.history(("users", "bob", "notes"), "k")
    ada.put(("mine",), "k", {"text": "tabs"})

    assert [each.namespace for each in ada.search((), query="tabs")] == [("mine",)]
    assert [each.namespace for each in ada.search(())] == [("mine",)]
    assert ada.list_namespaces() == [("mine",)]
    assert ada.get(("notes",), "k") is None
    assert ada.history(("notes",), "k") == []
    assert ada.forget(()) == 1
    assert len(everything.search(())) == 4
    with pytest.raises(NotFound):
        ada.restore(bobs.id)


def test_a_refused_restore_outside_of_a_root_writes_nothing(hf: Holdfast) -> None:
    ada, everything = HoldfastStore(hf, root=NS), HoldfastStore(hf)
    everything.put(("users", "bob"), "k", {"n": 1})
    everything.put(("users", "bob"), "k", {"n": 2})
    everything.put(("users", "eve"), "gone", {"n": 3})
    everything.delete(("users", "eve"), "gone")
    versions = [
        *everything.history(("users", "bob"), "k"),
        *everything.history(("users", "eve"), "gone"),
    ]

    for version in versions:
        with pytest.raises(NotFound):
            ada.restore(version.id)

    assert [each.value for each in everything.search(())] == [{"n": 2}]


def test_a_version_of_an_item_that_was_moved_out_of_the_root_is_not_restored(hf: Holdfast) -> None:
    ada = HoldfastStore(hf, root=NS)
    ada.put(("notes",), "k", {"n": 1})
    ada.put(("notes",), "k", {"n": 2})
    [_, first] = ada.history(("notes",), "k")
    hf.memory_stores.memories.rename(store_id(hf), "/users/ada", "/users/bob")

    with pytest.raises(NotFound):
        ada.restore(first.id)

    item = HoldfastStore(hf).get(("users", "bob", "notes"), "k")
    assert item is not None
    assert item.value == {"n": 2}


@pytest.mark.parametrize("root", ["users", ("users", ""), ("a.b",), ("n",) * 20])
def test_a_root_that_is_no_namespace_is_refused(root: tuple[str, ...]) -> None:
    with holdfast.open(":memory:") as hf, pytest.raises((InvalidInput, ValueError)):
        HoldfastStore(hf, root=root)


# Files of others in the store.


def test_a_file_that_is_no_item_is_neither_found_nor_listed(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "k", {"text": "tabs"})
    for path, content in [
        ("/users/ada/notes.md", '{"text": "tabs"}'),
        ("/users/ada/%6B.json", '{"text": "tabs"}'),
        ("/users/ada/é.json", '{"text": "tabs"}'),
        ("/users/ada/%FF.json", '{"text": "tabs"}'),
        ("/users/ada/list.json", '["tabs"]'),
        ("/users/ada/cut.json", '{"text": "tabs'),
        ("/users/ada/deep.json", '{"tabs":' * 10_000),
        ("/other/a.md", "tabs"),
    ]:
        hf.memory_stores.memories.create(store_id(hf), path=path, content=content)

    assert [each.key for each in store.search(())] == ["k"]
    assert [each.key for each in store.search((), query="tabs")] == ["k"]
    assert store.list_namespaces() == [NS]
    assert store.get(NS, "list") is None
    assert store.get(NS, "cut") is None


def test_files_that_are_no_items_leave_no_gap_in_a_page(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "k", {"text": "tabs " + "and other words " * 50})
    for n in range(3):
        path, content = f"/users/ada/{n}.md", "tabs tabs"
        hf.memory_stores.memories.create(store_id(hf), path=path, content=content)

    assert [each.key for each in store.search((), query="tabs", limit=1)] == ["k"]


def test_an_item_that_was_changed_as_a_file_is_found_changed(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "k", {"n": 1})
    assert [each.value for each in store.search(NS)] == [{"n": 1}]
    memories = hf.memory_stores.memories
    memory = memories.at(store_id(hf), "/users/ada/k.json")
    assert memory is not None

    memories.update(memory.id, memory_store_id=store_id(hf), content='{"n": 2}')

    assert [each.value for each in store.search(NS)] == [{"n": 2}]
    assert HoldfastStore(hf).search(NS, filter={"n": 2}) == store.search(NS, filter={"n": 2})


# The store.


def test_the_first_write_makes_the_store_and_reads_make_none(hf: Holdfast) -> None:
    store = HoldfastStore(hf, "mine")

    assert store.search(()) == []
    assert store.get(NS, "k") is None
    assert store.forget(()) == 0
    store.delete(NS, "k")
    assert hf.memory_stores.list().data == []
    store.put(NS, "k", {"n": 1})

    assert [each.name for each in hf.memory_stores.list().data] == ["mine"]


def test_a_store_that_was_deleted_is_made_again(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "k", {"n": 1})
    assert len(store.search(NS)) == 1
    hf.memory_stores.delete(store_id(hf))

    assert store.search(NS) == []
    store.put(NS, "l", {"n": 2})

    assert [each.key for each in store.search(NS)] == ["l"]


def test_a_store_named_by_id_is_used_and_an_unknown_id_is_not_found(hf: Holdfast) -> None:
    made = hf.memory_stores.create(name="mine")
    HoldfastStore(hf, made.id).put(NS, "k", {"n": 1})

    assert len(HoldfastStore(hf, "mine").search(NS)) == 1
    with pytest.raises(NotFound):
        HoldfastStore(hf, "memstore_unknown").search(NS)


# Versions.


def test_the_history_of_an_item_is_newest_first_and_restored_by_version(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    for n in range(3):
        store.put(NS, "k", {"n": n})
    history = store.history(NS, "k")

    item = store.restore(history[2].id)

    assert [each.operation for each in history] == ["modified", "modified", "created"]
    assert (item.namespace, item.key, item.value) == (NS, "k", {"n": 0})
    assert store.get(NS, "k") == item
    assert len(store.history(NS, "k")) == 4


def test_a_deleted_item_has_a_history_and_comes_back(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "k", {"n": 1})
    store.put(NS, "l", {"n": 2})
    store.delete(NS, "k")
    [deleted, created] = store.history(NS, "k")

    with pytest.raises(ValueError, match="is of a deletion"):
        store.restore(deleted.id)
    item = store.restore(created.id)

    assert store.get(NS, "k") == item
    assert item.value == {"n": 1}
    assert store.history(NS, "never") == []


def test_forget_deletes_below_a_namespace_and_nothing_comes_back(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    for namespace in [NS, (*NS, "deep"), ("users", "ada2")]:
        store.put(namespace, "k", {"n": 1})
        store.put(namespace, "k", {"n": 2})
    store.put(NS, "deleted", {"n": 3})
    store.delete(NS, "deleted")
    versions = [
        *store.history(NS, "k"),
        *store.history((*NS, "deep"), "k"),
        *store.history(NS, "deleted"),
    ]

    assert store.forget(NS) == 2

    assert [each.namespace for each in store.search(())] == [("users", "ada2")]
    assert len(store.history(("users", "ada2"), "k")) == 2
    assert store.history(NS, "k") == []
    for version in versions:
        with pytest.raises(ContentGone):
            store.restore(version.id)
    assert store.forget(NS) == 0


@pytest.mark.parametrize("namespace", [("..",), ("",), ("a.b",)])
def test_forget_of_a_namespace_that_cannot_be_is_refused(
    hf: Holdfast, namespace: tuple[str, ...]
) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "k", {"n": 1})

    with pytest.raises(ValueError, match="label"):
        store.forget(namespace)
    assert len(store.search(())) == 1


WORDS = ("Quixotic", "Zanzibar", "Xylophone", "Wyvern")


def test_no_byte_of_what_was_forgotten_is_in_the_files(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        store = HoldfastStore(hf)
        store.put(("other",), "k", {"text": "Remains"})
        store.put(NS, "k", {"text": WORDS[0]})
        store.put(NS, "k", {"text": WORDS[1]})
        store.put((*NS, "deep"), WORDS[3], {"text": WORDS[2]})
        store.put(("elsewhere",), "moved", {"text": WORDS[2]})
        memories = hf.memory_stores.memories
        memories.rename(store_id(hf), "/elsewhere/moved.json", "/users/ada/moved.json")
        assert len(store.search(NS, query=WORDS[2])) == 2

        store.forget(NS)

        assert len(store.search((), query="Remains")) == 1
        assert found(tmp_path) == {"remains"}
    assert found(tmp_path) == {"remains"}


def found(folder: Path) -> set[str]:
    """Return which of the words are in any file of *folder*, in any case."""
    text = b"".join(each.read_bytes() for each in folder.iterdir() if each.is_file()).lower()
    return {word for word in (*map(str.lower, WORDS), "remains") if word.encode() in text}


# Files.


def test_an_item_is_a_readable_file_with_its_names_in_the_path(hf: Holdfast) -> None:
    HoldfastStore(hf).put(("users", "a b"), "v1.0/é", {"text": "tabs", "n": 1})

    memory = hf.memory_stores.memories.at(store_id(hf), "/users/a b/v1%2E0%2F%C3%A9.json")

    assert memory is not None
    assert memory.content == '{\n  "n": 1,\n  "text": "tabs"\n}'


def test_scores_never_rise_from_one_match_to_the_next(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    store.put(NS, "both", {"text": "tabs spaces " + "other words of a long text " * 40})
    store.put(NS, "one", {"text": "spaces spaces spaces"})
    store.put(NS, "more", {"text": "tabs"})

    scores = [each.score or 0 for each in store.search(NS, query="tabs spaces")]

    assert scores[0] == 1
    assert scores == sorted(scores, reverse=True)
