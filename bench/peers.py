"""How do the stores of other products compare, with the same texts in everybody's hands?

Run it with the interpreter of the peers: `.venv/peers/bin/python bench/peers.py`, after
`make .venv/peers/.installed`. Each does what its documented synchronous API does by default; what
that is per item is in `PEERS`. The embedder is a toy, so that no model is measured.
"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

os.environ.update(MEM0_TELEMETRY="False", ANONYMIZED_TELEMETRY="False")
logging.getLogger("mem0").setLevel(logging.ERROR)
os.environ.setdefault("OPENAI_API_KEY", "none: no model is used")

import numpy as np
from chromadb import PersistentClient
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from measure import Bench, Timing, main, one_by_one, paired, together
from mem0 import Memory
from texts import Texts

import holdfast
from holdfast import LongTermOptions
from holdfast.testing.postgres import running_postgres

ITEMS, WORDS, DIMENSIONS = 5_000, 12, 256
LISTED, FOUND = 50, 10
GROUPS = 20
"""Categories, prefixes or values of a field that a list is filtered by: each has 250 items."""
PEERS = {
    "SqliteStore": "synced at each put (SQLite's default); one row and its vector",
    "PostgresStore": "synced at each put; one row and its vector",
    "mem0": "history in SQLite, the vector and text in a local Qdrant file; no word index",
    "chroma": "log and metadata in SQLite, an HNSW index in memory, written to disk in batches",
    "InMemoryStore": "nothing is kept, nothing is copied",
}
LOADS = hasattr(sqlite3.Connection, "enable_load_extension")
"""Whether this Python can load the vectors of SqliteStore; without them it does not search."""
STORES = ("SqliteStore", "PostgresStore")
"""Whose writes are compared with those of an earlier state of the code."""

ONE_CALLER = ("mem0", "InMemoryStore")
"""Not measured with 64 callers: mem0's local storage raises then; the other keeps nothing."""
GOALS: dict[str, dict[str, float]] = {
    "durable.set, 1 caller": {"SqliteStore": 2, "PostgresStore": 3, "mem0": 4, "chroma": 15},
    "memories.create, 1 caller": {"SqliteStore": 2, "PostgresStore": 2.5, "mem0": 3, "chroma": 12},
    "durable.set, 64 callers, of one caller": {
        "SqliteStore": 8,
        "PostgresStore": 15,
        "mem0": 15,
        "chroma": 60,
    },
    "durable.get": {
        "SqliteStore": 1.5,
        "PostgresStore": 15,
        "mem0": 0.9,
        "chroma": 25,
        "InMemoryStore": 0.2,
    },
    "memories.retrieve": {
        "SqliteStore": 1.5,
        "PostgresStore": 15,
        "mem0": 0.9,
        "chroma": 25,
        "InMemoryStore": 0.2,
    },
    "list of 50 in a category": {
        "SqliteStore": 12,
        "PostgresStore": 10,
        "mem0": 200,
        "chroma": 8,
        "InMemoryStore": 15,
    },
    "memories.search, 10 of 5,000": {
        "SqliteStore": 4,
        "PostgresStore": 1.2,
        "mem0": 25,
        "chroma": 1,
        "InMemoryStore": 25,
    },
    "ltm.recall, lexical": {
        "SqliteStore": 3,
        "PostgresStore": 1,
        "mem0": 20,
        "chroma": 1,
        "InMemoryStore": 20,
    },
    "ltm.recall, hybrid": {
        "SqliteStore": 2,
        "PostgresStore": 1,
        "mem0": 15,
        "chroma": 1,
        "InMemoryStore": 15,
    },
}
"""By row and peer how many times as fast as theirs ours is to be (performance.md 4)."""


class Toy:
    """An embedder that sums hashed word vectors: deterministic, and faster than any store."""

    model = "bench:toy"

    def __init__(self) -> None:
        self._words: dict[str, Any] = {}

    def embed(self, texts: Sequence[str], *, input_type: str) -> "list[list[float]]":
        """Return the vectors of *texts*, as our memory asks for them."""
        del input_type
        return self.vectors(texts)

    def vector(self, text: str) -> "list[float]":
        """Return the vector of *text*, of length 1."""
        summed = sum(map(self._word, text.split()), np.zeros(DIMENSIONS))
        return (summed / (float(np.linalg.norm(summed)) or 1.0)).tolist()

    def vectors(self, texts: Sequence[str]) -> "list[list[float]]":
        """Return the vector of each text."""
        return [self.vector(each) for each in texts]

    def _word(self, word: str) -> Any:
        if word not in self._words:
            seed = int.from_bytes(word.encode(), "big") % 2**32
            self._words[word] = np.random.default_rng(seed).standard_normal(DIMENSIONS)
        return self._words[word]


class Peer(Protocol):
    """What each product does with item *number* of the same texts."""

    def put(self, number: int, text: str) -> object:
        """Write an item under its number."""

    def get(self, number: int) -> object:
        """Read an item by its number."""

    def list(self, group: int) -> Sequence[object]:
        """Read fifty items of a group."""

    def search(self, query: str) -> Sequence[object]:
        """Return the ten items nearest to the query."""


class LangGraph:
    """A store of LangGraph, with an index of vectors."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, number: int, text: str) -> object:
        value = {"text": text, "group": number % GROUPS}
        return self._store.put(("bench",), f"key_{number}", value)

    def get(self, number: int) -> object:
        return self._store.get(("bench",), f"key_{number}")

    def list(self, group: int) -> Sequence[object]:
        return self._store.search(("bench",), filter={"group": group}, limit=LISTED)

    def search(self, query: str) -> Sequence[object]:
        return self._store.search(("bench",), query=query, limit=FOUND)


class Mem0:
    """Memory of mem0 with its default local storage, and no model."""

    def __init__(self, folder: Path, toy: Toy) -> None:
        os.environ["MEM0_DIR"] = str(folder)
        store = {"path": str(folder / "qdrant"), "on_disk": True}
        config = {**store, "embedding_model_dims": DIMENSIONS}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": config},
                "history_db_path": str(folder / "history.db"),
            }
        )
        self._memory.embedding_model = _Mem0Embedder(toy)
        self._ids: dict[int, str] = {}

    def put(self, number: int, text: str) -> object:
        metadata = {"group": number % GROUPS}
        done = self._memory.add(text, user_id="ada", infer=False, metadata=metadata)
        self._ids[number] = done["results"][0]["id"]
        return done

    def get(self, number: int) -> object:
        return self._memory.get(self._ids[number])

    def list(self, group: int) -> Sequence[object]:
        filters = {"user_id": "ada", "group": group}
        return self._memory.get_all(filters=filters, top_k=LISTED)["results"]

    def search(self, query: str) -> Sequence[object]:
        filters = {"user_id": "ada"}
        return self._memory.search(query, filters=filters, top_k=FOUND, threshold=0.0)["results"]


class _Mem0Embedder:
    """The toy as mem0 calls an embedder."""

    def __init__(self, toy: Toy) -> None:
        self._toy = toy

    def embed(self, text: str, memory_action: str | None = None) -> "list[float]":
        del memory_action
        return self._toy.vector(text)

    def embed_batch(self, texts: "list[str]", memory_action: str | None = None) -> Any:
        del memory_action
        return self._toy.vectors(texts)


class Chroma:
    """A persistent collection of Chroma."""

    def __init__(self, folder: Path, toy: Toy) -> None:
        self._toy = toy
        client = PersistentClient(str(folder))
        self._collection: Any = client.create_collection("bench", embedding_function=None)

    def put(self, number: int, text: str) -> object:
        return self._collection.upsert(
            ids=[f"key_{number}"],
            embeddings=[self._toy.vector(text)],
            documents=[text],
            metadatas=[{"group": number % GROUPS}],
        )

    def get(self, number: int) -> object:
        return self._collection.get(ids=[f"key_{number}"])

    def list(self, group: int) -> Sequence[object]:
        return self._collection.get(where={"group": group}, limit=LISTED)["ids"]

    def search(self, query: str) -> Sequence[object]:
        found = self._collection.query(query_embeddings=[self._toy.vector(query)], n_results=FOUND)
        return found["ids"][0]


class Ours:
    """The same texts in durable memory, a memory store and long-term memory of one target."""

    def __init__(self, target: str, toy: Toy, texts: Sequence[str]) -> None:
        self.hf = holdfast.open(target)
        self.hf.memory_stores.configure(memories_cap=1_000_000)
        self.durable, self._texts = self.hf.durable("bench"), texts
        self.durable.set_limits(cap=100_000)
        self.memories: Any = self.hf.memory_stores.memories
        self.store = self.hf.memory_stores.create(name="Bench").id
        self._made = count()
        self.ids: list[str] = []
        for number, text in enumerate(texts):
            self.set(number)
            path = f"/{number % GROUPS:02}/{number:05}.md"
            self.ids.append(self.memories.create(self.store, path=path, content=text).id)
        self.lexical = self._memory_of("lexical", False)
        self.hybrid = self._memory_of("hybrid", toy)

    def _memory_of(self, user: str, embedder: Any) -> Any:
        options = LongTermOptions(max_items=0)
        ltm: Any = self.hf.longterm(user, enabled=True, embedder=embedder, options=options)
        for text in self._texts:
            ltm.remember(text)
        ltm.flush()
        return ltm

    def set(self, number: int) -> object:
        key, category = f"key_{number}", f"group_{number % GROUPS}"
        return self.durable.set(key, self._texts[number % len(self._texts)], category=category)

    def overwrite(self, number: int) -> object:
        """Write an item again, with a text that it does not have."""
        at = number % len(self._texts)
        text = self._texts[(at + next(self._made)) % len(self._texts)]
        return self.durable.set(f"key_{at}", text, category=f"group_{at % GROUPS}")

    def get(self, number: int) -> object:
        return self.durable.get(f"key_{number % len(self._texts)}")

    def list(self, number: int) -> Sequence[object]:
        return self.durable.list(category=f"group_{number % GROUPS}", limit=LISTED).data

    def create(self, number: int) -> object:
        path = f"/made/{next(self._made):07}.md"
        return self.memories.create(self.store, path=path, content=self._texts[number])

    def retrieve(self, number: int) -> object:
        return self.memories.retrieve(self.ids[number % len(self.ids)], memory_store_id=self.store)

    def search(self, query: str) -> Sequence[object]:
        return self.memories.search(self.store, query, limit=FOUND)


class Sized(NamedTuple):
    """How many calls a side of a round makes."""

    writes: int
    reads: int
    searches: int


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    texts, toy = Texts(11), Toy()
    corpus = [texts.words(WORDS) for _ in range(bench.size(ITEMS, 400))]
    queries = [texts.asked(corpus[number * 7 % len(corpus)]) for number in range(200)]
    sized = Sized(bench.size(300, 64), bench.size(1_000, 100), bench.size(100, 10))
    with ExitStack() as stack:
        server = stack.enter_context(running_postgres())
        ours = Ours(str(bench.folder / "ours.db"), toy, corpus)
        stack.callback(ours.hf.close)
        for name, made in _makers(bench.folder, toy, server.url(server.new_database())).items():
            if bench.writes and name not in STORES:
                continue
            peer = stack.enter_context(made())
            for number, text in enumerate(corpus):
                peer.put(number, text)
            _compare(bench, name, Sides(ours, peer, corpus, queries), sized)


def _makers(folder: Path, toy: Toy, url: str) -> "dict[str, Callable[[], Any]]":
    index: Any = {"dims": DIMENSIONS, "embed": toy.vectors, "fields": ["text"]}

    @contextmanager
    def sqlite() -> Generator[Peer]:
        vectors = index if LOADS else None
        with SqliteStore.from_conn_string(str(folder / "peer.db"), index=vectors) as store:
            store.setup()
            yield LangGraph(store)

    @contextmanager
    def postgres() -> Generator[Peer]:
        with PostgresStore.from_conn_string(url, index=index) as store:
            store.setup()
            yield LangGraph(store)

    @contextmanager
    def mem0() -> Generator[Peer]:
        yield Mem0(folder / "mem0", toy)

    @contextmanager
    def chroma() -> Generator[Peer]:
        yield Chroma(folder / "chroma", toy)

    @contextmanager
    def in_memory() -> Generator[Peer]:
        yield LangGraph(InMemoryStore(index=index))

    makers = (sqlite, postgres, mem0, chroma, in_memory)
    return dict(zip(PEERS, makers, strict=True))


class Sides(NamedTuple):
    """What is compared: ours, a peer, and the texts and queries that both get."""

    ours: Ours
    peer: Peer
    texts: Sequence[str]
    queries: Sequence[str]


def _compare(bench: Bench, name: str, sides: Sides, sized: Sized) -> None:
    """Add the rows of one peer."""
    ours, peer, texts, queries = sides
    made = count(len(texts))

    def theirs_put() -> Timing:
        return one_by_one(
            sized.writes, lambda number: peer.put(next(made), texts[number % len(texts)])
        )

    def searches(search: Callable[[str], object]) -> Callable[[], Timing]:
        return lambda: one_by_one(
            sized.searches, lambda number: search(queries[number % len(queries)])
        )

    def read(get: Callable[[int], object]) -> Callable[[], Timing]:
        return lambda: one_by_one(sized.reads, lambda number: get(number * 13 % len(texts)))

    def lists(list_: Callable[[int], object]) -> Callable[[], Timing]:
        return lambda: one_by_one(sized.searches, lambda number: list_(number % GROUPS))

    seek = searches(peer.search)
    many = sized.writes * 4 // 64 * 64
    rows: dict[str, tuple[Callable[[], Timing], Callable[[], Timing]]] = {
        "durable.set, 1 caller": (lambda: one_by_one(sized.writes, ours.overwrite), theirs_put),
        "memories.create, 1 caller": (lambda: one_by_one(sized.writes, ours.create), theirs_put),
        "durable.set, 64 callers, of one caller": (
            lambda: together(64, many, ours.overwrite),
            theirs_put,
        ),
        "durable.get": (read(ours.get), read(peer.get)),
        "memories.retrieve": (read(ours.retrieve), read(peer.get)),
        "list of 50 in a category": (lists(ours.list), lists(peer.list)),
        "memories.search, 10 of 5,000": (searches(ours.search), seek),
        "ltm.recall, lexical": (searches(ours.lexical.recall), seek),
        "ltm.recall, hybrid": (searches(ours.hybrid.recall), seek),
    }
    for what, (mine, other) in rows.items():
        goal = GOALS[what].get(name)
        seeks = other is seek and name == "SqliteStore" and not LOADS
        left_out = bench.writes and other is not theirs_put
        if goal is not None and not seeks and not left_out:
            bench.rate(what, name, goal, paired(mine, other, bench.rounds))
    if name not in ONE_CALLER:
        crowd = paired(
            lambda: together(64, many, ours.overwrite),
            lambda: together(64, many, lambda number: peer.put(next(made), texts[number % 400])),
            bench.rounds,
        )
        bench.rate("durable.set, 64 callers of both", name, 1, crowd)


if __name__ == "__main__":
    main("peers", __doc__ or "", run)
