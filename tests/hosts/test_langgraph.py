"""LangGraph's store on a memory store: the contract, also run on LangGraph's own stores.

A case that one of these fails on purpose is marked with the reason, and must fail there.
"""

from collections.abc import Iterator

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from holdfast.doors.adapters.langgraph import HoldfastStore
from holdfast.library.holdfast import Holdfast

OURS = ("memory", "postgres", "http")
THEIRS = ("InMemoryStore", "SqliteStore")

differs = pytest.mark.differs
ours_alone = pytest.mark.parametrize("target", OURS, indirect=True)


@pytest.fixture(params=[*OURS, *THEIRS])
def target(request: pytest.FixtureRequest) -> str:
    """Name what the store is on: our handles, or LangGraph's own stores, which must agree."""
    return request.param


@pytest.fixture
def store(request: pytest.FixtureRequest, target: str) -> Iterator[BaseStore]:
    for marker in request.node.iter_markers("differs"):
        if marker.args[0] == target:
            request.applymarker(pytest.mark.xfail(reason=marker.args[1], strict=True))
    if target == "InMemoryStore":
        yield InMemoryStore()
    elif target == "SqliteStore":
        with SqliteStore.from_conn_string(":memory:") as sqlite:
            sqlite.setup()
            yield sqlite
    else:
        yield HoldfastStore(request.getfixturevalue("hf"))


def keys(found: list[SearchItem]) -> list[str]:
    return sorted(each.key for each in found)


NS = ("users", "ada")


# Items.


def test_what_was_put_is_read_back(store: BaseStore) -> None:
    value = {"text": "likes tabs\nand Zürich", "n": [1, 2.5, None, True, {"deep": [[0]]}]}

    store.put(NS, "a/b", value)

    item = store.get(NS, "a/b")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (NS, "a/b", value)


def test_an_absent_item_is_none(store: BaseStore) -> None:
    assert store.search(("nowhere",)) == []
    assert store.list_namespaces() == []
    assert store.get(NS, "nothing") is None


@differs("SqliteStore", "its times have no zone")
def test_times_are_aware(store: BaseStore) -> None:
    store.put(NS, "k", {})

    for item in (store.get(NS, "k"), *store.search(NS)):
        assert item is not None
        assert item.created_at.tzinfo is not None
        assert item.updated_at.tzinfo is not None


def test_a_deleted_item_is_none_and_an_absent_one_can_be_deleted(store: BaseStore) -> None:
    store.put(NS, "k", {"a": 1})

    store.delete(NS, "k")
    store.delete(NS, "never")

    assert store.get(NS, "k") is None
    assert store.search(NS) == []


@differs("InMemoryStore", "makes the item anew with each put")
@differs("SqliteStore", "its times are whole seconds")
def test_an_update_keeps_the_creation_time_and_moves_the_other(store: BaseStore) -> None:
    store.put(NS, "k", {"a": 1})
    first = store.get(NS, "k")
    store.put(NS, "k", {"a": 2})
    second = store.get(NS, "k")

    assert first is not None
    assert second is not None
    assert second.value == {"a": 2}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at


@ours_alone
def test_a_put_of_the_same_value_writes_no_version(store: HoldfastStore) -> None:
    store.put(NS, "k", {"a": 1, "b": 2})
    store.put(NS, "k", {"b": 2, "a": 1})

    assert len(store.history(NS, "k")) == 1


@differs("InMemoryStore", "holds the object itself")
def test_a_tuple_comes_back_as_the_list_that_json_makes_of_it(store: BaseStore) -> None:
    store.put(NS, "k", {"a": (1, 2)})

    item = store.get(NS, "k")
    assert item is not None
    assert item.value == {"a": [1, 2]}


@differs("InMemoryStore", "holds the object itself")
def test_a_value_that_a_caller_changes_stays_as_it_was_put(store: BaseStore) -> None:
    store.put(NS, "k", {"list": [1]})

    for _ in range(2):
        [found] = store.search(NS)
        assert found.value == {"list": [1]}
        found.value["list"].append(2)


@differs("InMemoryStore", "takes any object")
@pytest.mark.parametrize("value", [{"a": {1}}, {"a": b"raw"}, {"a": object()}])
def test_a_value_that_is_not_json_is_a_type_error(
    store: BaseStore, value: dict[str, object]
) -> None:
    with pytest.raises(TypeError):
        store.put(NS, "k", value)
    assert store.get(NS, "k") is None


@differs("InMemoryStore", "takes any object")
@differs("SqliteStore", "writes NaN, which no other reader of JSON takes")
def test_a_number_that_json_lacks_is_a_type_error(store: BaseStore) -> None:
    with pytest.raises(TypeError, match=r"\$.a\[1\]: float nan is not JSON"):
        store.put(NS, "k", {"a": [1, float("nan")]})


@differs("InMemoryStore", "has no limit")
@differs("SqliteStore", "has no limit")
def test_a_value_over_the_limit_names_both_numbers(store: BaseStore) -> None:
    with pytest.raises(ValueError, match=r"102,4\d\d bytes as JSON, more than 102,400"):
        store.put(NS, "k", {"a": "x" * 102_400})
    store.put(NS, "k", {"a": "x" * 102_000})

    assert store.get(NS, "k") is not None


@differs("SqliteStore", "supports them")
def test_a_time_to_live_is_not_supported(store: BaseStore) -> None:
    with pytest.raises(NotImplementedError):
        store.put(NS, "k", {"a": 1}, ttl=5)


def test_index_is_ignored(store: BaseStore) -> None:
    store.put(NS, "k", {"a": "tabs"}, index=False)
    store.put(NS, "l", {"a": "tabs"}, index=["a"])

    assert keys(store.search(NS)) == ["k", "l"]


# Names.

LABELS = ("a", "A", "a b", "a/b", "a%2Fb", "%", "%2E", "*", "é", "e\u0301", "ß", "ss", "x" * 300)
KEYS = (*LABELS, "", ".", "..", "a.json", "a.json.json", "a.", "a:b", "\\", "\n", "\u200d")


def test_keys_that_look_alike_are_different_items(store: BaseStore) -> None:
    for number, key in enumerate(KEYS):
        store.put(NS, key, {"n": number})

    for number, key in enumerate(KEYS):
        item = store.get(NS, key)
        assert item is not None
        assert (item.key, item.value) == (key, {"n": number})
    assert sorted(each.key for each in store.search(NS, limit=100)) == sorted(KEYS)


def test_labels_that_look_alike_are_different_namespaces(store: BaseStore) -> None:
    for number, label in enumerate(LABELS):
        store.put(("users", label), "k", {"n": number})

    for number, label in enumerate(LABELS):
        item = store.get(("users", label), "k")
        assert item is not None
        assert item.value == {"n": number}
        assert [each.namespace for each in store.search(("users", label))] == [("users", label)]
    assert store.list_namespaces() == sorted(("users", label) for label in LABELS)


def test_labels_joined_otherwise_are_different_namespaces(store: BaseStore) -> None:
    places = [(("a:b",), "c"), (("a",), "b:c"), (("a", "b"), "c"), (("a/b",), "c"), (("a",), "b/c")]
    for number, (namespace, key) in enumerate(places):
        store.put(namespace, key, {"n": number})

    for number, (namespace, key) in enumerate(places):
        item = store.get(namespace, key)
        assert item is not None
        assert item.value == {"n": number}


def test_an_item_and_a_namespace_may_have_the_same_name(store: BaseStore) -> None:
    store.put(("users",), "ada", {"n": 1})
    store.put(("users", "ada"), "ada", {"n": 2})
    store.put(("users", "ada", "ada"), "ada", {"n": 3})

    assert len(store.search(("users",))) == 3


@pytest.mark.parametrize("label", ["", "a.b", "..", "\0"])
def test_a_label_that_langgraph_refuses_is_refused_in_raw_operations_too(
    store: BaseStore, target: str, label: str
) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(("users", label), "k", {"a": 1})
    if target in OURS:
        raw: list[Op] = [
            PutOp(("users", label), "k", {"a": 1}),
            PutOp(("users", label), "k", None),
            GetOp(("users", label), "k"),
            SearchOp(("users", label)),
            ListNamespacesOp((MatchCondition("prefix", ("users", label)),)),
        ]
        for op in raw:
            with pytest.raises(InvalidNamespaceError):
                store.batch([PutOp(NS, "k", {"a": 1}), op])
        assert store.get(NS, "k") is None


@differs("InMemoryStore", "has no limit")
@differs("SqliteStore", "has no limit")
def test_names_over_the_limits_name_the_limit(store: BaseStore) -> None:
    with pytest.raises(InvalidNamespaceError, match="20 labels, more than 19"):
        store.put(("n",) * 20, "k", {"a": 1})
    with pytest.raises(InvalidNamespaceError, match=r"1,0\d\d bytes as a path, more than 1,024"):
        store.put(("n" * 1_020,), "k", {"a": 1})
    with pytest.raises(ValueError, match=r"1,0\d\d bytes as a path, more than 1,024"):
        store.put(("n",), "k" * 1_020, {"a": 1})
    store.put(("n",) * 19, "k", {"a": 1})
    store.put(("n",), "k" * 1_016, {"a": 1})

    assert len(store.search(())) == 2


# Batches.


def test_a_batch_reads_the_state_before_it(store: BaseStore) -> None:
    store.put(NS, "k", {"n": 1})

    results = store.batch(
        [PutOp(NS, "k", {"n": 2}), GetOp(NS, "k"), PutOp(NS, "new", {"n": 3}), SearchOp(NS)]
    )

    assert results[0] is None
    assert results[2] is None
    assert getattr(results[1], "value", None) == {"n": 1}
    assert [each.value for each in store.search(NS, filter={"n": 2})] == [{"n": 2}]
    found = results[3]
    assert isinstance(found, list)
    assert [getattr(each, "key", None) for each in found] == ["k"]


def test_of_several_puts_of_a_key_the_last_wins(store: BaseStore) -> None:
    store.batch([PutOp(NS, "k", {"n": 1}), PutOp(NS, "l", {"n": 1}), PutOp(NS, "k", {"n": 2})])
    store.batch([PutOp(NS, "l", None), PutOp(NS, "l", {"n": 3})])
    store.batch([PutOp(NS, "m", {"n": 4}), PutOp(NS, "m", None)])

    found = {each.key: each.value for each in store.search(NS)}
    assert found == {"k": {"n": 2}, "l": {"n": 3}}


@pytest.mark.parametrize(
    "wrong",
    [
        PutOp(NS, "bad", {"a": {1}}),
        PutOp(NS, "big", {"a": "x" * 110_000}),
        PutOp(("n",) * 20, "k", {"a": 1}),
        SearchOp(NS, filter={"a": {"$in": [1]}}),
        SearchOp(NS, limit=-1),
        "no operation",
    ],
)
@ours_alone
def test_a_batch_with_an_invalid_operation_writes_nothing(store: BaseStore, wrong: Op) -> None:
    with pytest.raises((TypeError, ValueError)):
        store.batch([PutOp(NS, "k", {"a": 1}), wrong, PutOp(NS, "bad", {"a": 1})])

    assert store.search(()) == []


@ours_alone
def test_the_puts_of_a_batch_are_one_transaction(store: HoldfastStore, hf: Holdfast) -> None:
    store.put(NS, "k", {"n": 1})
    [own] = hf.memory_stores.list().data
    before = hf.memory_stores.memories.snapshot(own.id).seq

    store.batch([PutOp(NS, "k", None), *(PutOp(NS, f"k{n}", {"n": n}) for n in range(30))])

    page = hf.memory_stores.memories.changes(own.id, before)
    assert len(page.changes) == 31
    assert (
        len(
            {
                each.created_at
                for each in hf.memory_stores.memory_versions.list(own.id, limit=31).data
            }
        )
        == 1
    )


@ours_alone
def test_a_batch_of_too_many_puts_names_the_limit(store: BaseStore) -> None:
    with pytest.raises(ValueError, match="1,001 puts, more than 1,000"):
        store.batch([PutOp(NS, f"k{n}", {"n": n}) for n in range(1_001)])


# Searches.


def test_a_prefix_matches_whole_labels(store: BaseStore) -> None:
    for namespace in [("users", "ada"), ("users", "ada2"), ("users", "ada", "x"), ("user",)]:
        store.put(namespace, "k", {"a": 1})

    assert sorted(each.namespace for each in store.search(("users", "ada"))) == [
        ("users", "ada"),
        ("users", "ada", "x"),
    ]
    assert len(store.search(())) == 4


@differs("InMemoryStore", "gives them in the order of their first put")
@differs("SqliteStore", "its times are whole seconds, and it has no second order")
def test_the_newest_comes_first(store: BaseStore) -> None:
    for key in "abc":
        store.put(NS, key, {"n": 1})
    store.put(NS, "a", {"n": 2})
    store.batch([PutOp(("z",), "y", {}), PutOp(("z",), "x", {}), PutOp(("a",), "x", {})])

    found = store.search(())

    assert [(each.namespace[0], each.key) for each in found] == [
        ("a", "x"),
        ("z", "x"),
        ("z", "y"),
        ("users", "a"),
        ("users", "c"),
        ("users", "b"),
    ]
    assert all(each.score is None for each in found)


def test_offset_and_limit_page_through_all_items_once(store: BaseStore) -> None:
    for n in range(25):
        store.put(NS, f"k{n}", {"n": n, "even": n % 2 == 0})

    pages = [store.search(NS, offset=at, limit=10) for at in (0, 10, 20, 30)]
    filtered = [
        store.search(NS, filter={"even": True}, offset=at, limit=5) for at in (0, 5, 10, 15)
    ]

    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert len({each.key for page in pages for each in page}) == 25
    assert [len(page) for page in filtered] == [5, 5, 3, 0]
    assert len({each.key for page in filtered for each in page}) == 13
    assert store.search(NS, limit=0) == []


@differs("InMemoryStore", "has no words without embeddings, and gives everything")
@differs("SqliteStore", "has no words without embeddings, and gives everything")
def test_a_query_gives_only_what_matches_best_first(store: BaseStore) -> None:
    store.put(NS, "k1", {"text": "prefers tabs over spaces in Python"})
    store.put(NS, "k2", {"text": "spaces between words"})
    store.put(NS, "k3", {"text": "lives in Rome"})
    store.put(("users", "bob"), "k4", {"text": "tabs and spaces"})

    found = store.search(NS, query="tabs or spaces?")

    assert [each.key for each in found] == ["k1", "k2"]
    scores = [each.score for each in found if each.score is not None]
    assert len(scores) == 2
    assert 1 >= scores[0] > scores[1] > 0
    assert store.search(NS, query="sailing") == []
    assert [each.key for each in store.search(NS, query="spaces tabs", limit=1, offset=1)] == ["k2"]
    assert keys(store.search(NS, query=" ")) == ["k1", "k2", "k3"]


@differs("InMemoryStore", "has no words without embeddings, and gives everything")
@differs("SqliteStore", "has no words without embeddings, and gives everything")
def test_a_query_and_a_filter_hold_together(store: BaseStore) -> None:
    for n in range(30):
        store.put(NS, f"k{n}", {"text": "tabs" if n % 2 else "spaces", "n": n})

    found = store.search(NS, query="tabs", filter={"n": {"$gt": 20}}, limit=3)

    assert len(found) == 3
    assert {each.value["text"] for each in found} == {"tabs"}
    assert all(each.value["n"] > 20 for each in found)


WORDS = 'one\ntwo\tthree\r\n"four" five\\six\x1bseven\u2028eight café\nété'


@ours_alone
def test_words_are_found_after_any_character_that_json_escapes(store: BaseStore) -> None:
    value = {"text": WORDS, "list\nnine": ["\nten", {"deep": "\n\nzwölf"}]}
    store.put(NS, "k", value)

    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "cafe", "ete", "nine"]
    words += ["ten", "zwolf", "deep"]
    assert [word for word in words if not store.search(NS, query=word)] == []
    assert keys(store.search(NS, query='"one two three"')) == ["k"]
    assert [store.search(NS, query=word) for word in ("ntwo", "tthree", "nten")] == [[], [], []]
    [found] = store.search(NS, query="ten")
    assert found.value == value


@ours_alone
def test_a_query_with_many_matches_gives_all_of_them_page_by_page(store: BaseStore) -> None:
    numbers = range(230)
    store.batch([PutOp(NS, f"k{n}", {"text": "tabs", "n": n}) for n in numbers])

    whole = store.search(NS, query="tabs", limit=1_000)
    pages = [store.search(NS, query="tabs", limit=100, offset=at) for at in (0, 100, 200, 300)]

    assert {each.value["n"] for each in whole} == set(numbers)
    assert [len(page) for page in pages] == [100, 100, 30, 0]
    assert [each.key for page in pages for each in page] == [each.key for each in whole]
    assert len({each.key for each in whole}) == len(whole)


@ours_alone
def test_a_filter_finds_what_is_not_among_the_best_matches(store: BaseStore) -> None:
    store.batch([PutOp(NS, f"k{n}", {"text": "tabs tabs", "n": n}) for n in range(130)])
    store.put(NS, "last", {"text": "tabs " + "and many other words " * 50, "n": -1})

    assert keys(store.search(NS, query="tabs", filter={"n": -1})) == ["last"]
    assert len(store.search(NS, query="tabs", filter={"n": {"$gte": 0}}, limit=1_000)) == 130


# Filters.

VALUES = {
    "nine": {"n": 9, "s": "b", "tags": ["x", "y"], "who": {"name": "ada", "age": 36}},
    "ten": {"n": 10, "s": "a", "tags": ["y", "x"], "who": {"name": "bob"}},
    "none": {"n": None, "s": ""},
    "yes": {"n": True},
    "half": {"n": 9.5},
    "text": {"n": "9"},
}


@pytest.fixture
def filled(store: BaseStore) -> BaseStore:
    for key, value in VALUES.items():
        store.put(NS, key, value)
    return store


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"s": "a"}, ["ten"]),
        ({"n": 10}, ["ten"]),
        ({"n": 10.0, "s": "a"}, ["ten"]),
        ({"n": {"$eq": 10}}, ["ten"]),
        ({}, sorted(VALUES)),
    ],
)
def test_a_filter_compares_for_equality(
    filled: BaseStore, wanted: dict[str, object], found: list[str]
) -> None:
    assert keys(filled.search(NS, filter=wanted)) == found


@differs("SqliteStore", "compares the JSON text of lists and mappings")
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"tags": ["x", "y"]}, ["nine"]),
        ({"tags": ("y", "x")}, ["ten"]),
        ({"who": {"name": "ada"}}, ["nine"]),
        ({"who": {"age": {"$ne": 36}, "name": "bob"}}, ["ten"]),
    ],
)
def test_a_filter_compares_lists_by_position_and_mappings_by_their_members(
    filled: BaseStore, wanted: dict[str, object], found: list[str]
) -> None:
    assert keys(filled.search(NS, filter=wanted)) == found
    assert filled.search(NS, filter={"tags": ["x"]}) == []
    assert filled.search(NS, filter={"who": {"name": "eve"}}) == []


@differs("SqliteStore", "an absent field is neither equal nor unequal to anything")
def test_an_absent_field_is_equal_to_none_and_unequal_to_the_rest(filled: BaseStore) -> None:
    assert keys(filled.search(NS, filter={"s": None})) == ["half", "text", "yes"]
    assert keys(filled.search(NS, filter={"s": {"$ne": "a"}})) == sorted(VALUES.keys() - {"ten"})
    assert keys(filled.search(NS, filter={"s": {"$ne": None}})) == ["nine", "none", "ten"]


ORDERS: list[tuple[dict[str, object], list[str]]] = [
    ({"n": {"$gt": 9}}, ["half", "ten"]),
    ({"n": {"$gte": 9}}, ["half", "nine", "ten"]),
    ({"n": {"$lt": 10}}, ["half", "nine"]),
    ({"n": {"$lte": 9.5, "$gt": 9}}, ["half"]),
    ({"n": {"$lt": "91"}}, ["text"]),
    ({"s": {"$gt": "a"}}, ["nine"]),
    ({"n": {"$gt": None}}, []),
    ({"tags": {"$gt": ["a"]}}, []),
]


@differs("InMemoryStore", "a float() of what cannot be compared raises")
@differs("SqliteStore", "an order across kinds is that of SQLite")
def test_an_order_holds_only_between_numbers_or_between_texts(filled: BaseStore) -> None:
    for wanted, found in ORDERS:
        assert keys(filled.search(NS, filter=wanted)) == found


def test_ten_comes_after_nine(store: BaseStore) -> None:
    for n in (1, 9, 10, 100):
        store.put(NS, str(n), {"n": n})

    assert keys(store.search(NS, filter={"n": {"$gt": 9}})) == ["10", "100"]
    assert keys(store.search(NS, filter={"n": {"$lte": 10}})) == ["1", "10", "9"]


@differs("InMemoryStore", "True is 1 in Python")
@differs("SqliteStore", "True is 1 in SQLite")
def test_true_is_no_number(filled: BaseStore) -> None:
    assert keys(filled.search(NS, filter={"n": True})) == ["yes"]
    assert filled.search(NS, filter={"n": 1}) == []
    assert keys(filled.search(NS, filter={"n": {"$ne": 1}})) == sorted(VALUES)


@pytest.mark.parametrize("wanted", [{"n": {"$in": [9]}}, {"n": {"$gt": 1, "$exists": True}}])
def test_an_unknown_operator_is_an_error(filled: BaseStore, wanted: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\$(in|exists)|Unsupported"):
        filled.search(NS, filter=wanted)


@ours_alone
@pytest.mark.parametrize("wanted", [{"$and": [{"n": 9}]}, {"who": {"name": {"$in": ["ada"]}}}])
def test_an_unknown_operator_is_an_error_wherever_it_stands_and_without_items(
    store: BaseStore, wanted: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"\$(and|in) is not known"):
        store.search(NS, filter=wanted)


# Namespaces.


def test_namespaces_are_those_of_live_items_sorted(store: BaseStore) -> None:
    for namespace in [("b",), ("a", "x", "v1"), ("a", "y", "v1"), ("a", "y", "v2"), ("c", "x")]:
        store.put(namespace, "k", {"a": 1})
    store.put(("a", "x", "v1"), "l", {"a": 1})

    assert store.list_namespaces(prefix=("a",)) == [
        ("a", "x", "v1"),
        ("a", "y", "v1"),
        ("a", "y", "v2"),
    ]
    assert store.list_namespaces(suffix=("v1",)) == [("a", "x", "v1"), ("a", "y", "v1")]
    assert store.list_namespaces(prefix=("a", "*"), suffix=("v2",)) == [("a", "y", "v2")]
    assert store.list_namespaces(max_depth=1) == [("a",), ("b",), ("c",)]
    assert store.list_namespaces(max_depth=2, limit=2, offset=1) == [("a", "y"), ("b",)]
    assert store.list_namespaces(prefix=("a", "x", "v1", "deeper")) == []


@differs("InMemoryStore", "lists the namespace of an item that was deleted")
def test_a_namespace_ends_with_its_last_item(store: BaseStore) -> None:
    store.put(("a",), "k", {"a": 1})
    store.put(("b",), "k", {"a": 1})
    store.delete(("a",), "k")

    assert store.list_namespaces() == [("b",)]
