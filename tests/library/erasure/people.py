"""Two people who have something in each place, and all that a database answers of them."""

from datetime import UTC, datetime
from pathlib import Path

from contracts.longterm_vectors import stored_bytes

from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions, Turn
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.record import HeldRun, RunAcquisition
from holdfast.memories.state import history as messages
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import ThreadMessage, ThreadTurn
from holdfast.testing.embedders import WordEmbedder

MARK = "Kq9fPrivateSentence"
"""In every text of the person who is erased."""
STAYS = "Zw3xSentenceOfOthers"
AGENTS = {"ada": "agent_8", "bob": "agent_9"}


def fill(hf: Holdfast, **options: object) -> None:
    """Give *hf* something of ada in each place, and of bob."""
    fill_owned(hf, **options)
    fill_linked(hf)


def fill_owned(hf: Holdfast, **options: object) -> None:
    """Give *hf* what carries the names of ada and bob, and what is linked later."""
    chosen = LongTermOptions(**options)  # pyright: ignore[reportArgumentType] - names of fields
    embedder = WordEmbedder() if options else None
    for user, text in (("ada", MARK), ("bob", STAYS)):
        memory = hf.longterm(user, enabled=True, embedder=embedder, options=chosen)
        assert memory is not None
        memory.remember(f"{text} of an item")
        memory.record([Turn(role="user", text=f"{text} of a turn")])
        memory.recall("sentence")
        assert memory.flush(30).done
        store = hf.memory_stores.create(name=f"Of {user}", metadata={"holdfast.user": user})
        hf.memory_stores.memories.create(store.id, path="/a.md", content=f"{text} of a file")
        entry = hf.durable("agent_7").set(user, f"{text} of an entry", category="core")
        hf.subjects.link("durable_entry", entry.id, user=user)


def fill_linked(hf: Holdfast) -> None:
    """Give *hf* what is linked to ada and bob as it is written."""
    for user, text in (("ada", MARK), ("bob", STAYS)):
        write_about(hf, user, text)
        say(hf, user, text, "shared")


def write_about(hf: Holdfast, user: str, text: str) -> None:
    """Write entries, versions, turns and runs about *user*."""
    agent = AGENTS.get(user, "agent_8")
    durable = hf.durable(agent)
    durable.set(f"{user}_1", f"{text} of an earlier content", category="notes", subject=user)
    durable.set(f"{user}_1", f"{text} of a later content", category="notes")
    durable.set(f"{user}_2", f"{text} of an evicted entry", category="notes", subject=user)
    durable.set_limits(cap=1, evict=True)
    durable.set_limits(cap=None)
    durable.set(f"{user}_1", f"{STAYS} of others now", category="notes")
    about = hf.for_subject(user)
    with about.durable(agent).run() as run:
        run.set(f"{user}_3", f"{text} of an entry in a run", category="core")
    shared = next((each for each in hf.memory_stores.list() if each.name == "Shared"), None)
    store = shared or hf.memory_stores.create(name="Shared")
    memories = about.memory_stores.memories
    memories.create(store.id, path=f"/{text}.md", content=f"{text} of a file in a shared store")
    edited = memories.create(store.id, path=f"/{user}.md", content=f"{text} of a version")
    hf.memory_stores.memories.update(edited.id, memory_store_id=store.id, content=STAYS)
    say(hf, user, text, f"thread_{user}")
    memory = RunMemory(run_id=f"attached_{user}")
    end = hf.runs.attach(memory, name="plan", user=user, metadata={"note": f"{text} of metadata"})
    memory.set("shared:note", f"{text} of a run's entry", title=f"{text} of a title")
    end()
    assert {each.type for each in hf.runs.follow(memory.run_id, wait=30)} > {"run.completed"}


def say(hf: Holdfast, user: str, text: str, thread: str) -> None:
    """Let *user* speak with an agent in *thread*, in a run of *user*'s."""
    run = f"run_{thread}_{user}"
    opening = RunAcquisition(
        run_id=run, holder="h", name="talk", place="p", started_at=0, thread_id=thread, user=user
    )
    hf.runs.shown.recorder.begin(opening)
    said = ThreadMessage(id=f"m_{user}", content=f"{text} of a message", at=datetime.now(UTC))
    answer = InferenceResult(
        agent="agent_9", run_id=run, output=[messages.assistant(f"{text} of an answer")]
    )
    hf.threads.append(thread, [ThreadTurn.said(said, run_id=run), answer])
    held = HeldRun(run_id=run, holder="h", fence=1, number=0)
    hf.runs.shown.recorder.release(held, "completed")


def files_with(folder: Path, mark: str) -> list[str]:
    """Return the files below *folder* that hold *mark*, but for backups and replaced files."""
    return [
        each.name
        for each in folder.rglob("*")
        if each.is_file() and ".replaced-" not in each.name and mark.encode() in stored_bytes(each)
    ]


def dump(hf: Holdfast) -> str:
    """Return everything that the memories of *hf* answer."""
    people = list(hf.longterm_people())
    data = [hf.longterm_data(each.user, namespace=each.namespace) for each in people]
    stores = [each.id for each in hf.memory_stores.list()]
    versions = [
        [*hf.memory_stores.memory_versions.list(store, view="full").all()] for store in stores
    ]
    agents = [hf.durable(each) for each in ("agent_7", *AGENTS.values())]
    durable = [[[*each.list()], [*each.history().all()]] for each in agents]
    activity = list(hf.activity(limit=1000))
    threads = [[each, *hf.threads.turns(each.id)] for each in hf.threads.list()]
    runs = [[each, *hf.runs.entries(each.id), *hf.runs.follow(each.id)] for each in hf.runs.list()]
    seen = [people, [[*each.list()] for each in data], versions, durable, activity]
    return str([*seen, threads, runs, [*hf.subjects.list()]])


def past(hf: Holdfast, moments: list[datetime]) -> str:
    """Return everything that the memories of *hf* answer about each of *moments*."""
    people = list(hf.longterm_people())
    data = [hf.longterm_data(each.user, namespace=each.namespace) for each in people]
    seen: list[object] = []
    for at in moments:
        for agent in ("agent_7", *AGENTS.values()):
            seen += hf.durable(agent).list(at=at).all()
        for store in hf.memory_stores.list():
            if store.created_at <= at:
                seen += hf.memory_stores.memories.list(store.id, at=at, view="full").all()
        for each in data:
            seen += [*each.list(at=at), *each.list("turns", at=at)]
    return str(seen)


def nothing_of_ada(hf: Holdfast) -> None:
    seen = dump(hf)
    assert MARK not in seen
    assert "'ada'" not in seen
    assert STAYS in seen
    assert hf.verify().findings == ()
