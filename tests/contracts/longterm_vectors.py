"""Contract of semantic recall in long-term memory, with any vector provider."""

import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from contracts.longterm_items import items, kept, memory_of, said, texts
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Turn
from holdfast.memories.longterm.vectors.compare import standing_of
from holdfast.memories.longterm.vectors.embedder import InputType
from holdfast.testing.embedders import WordEmbedder
from holdfast.testing.fakes import FrozenClock

SECONDS = 20
"""How long a test waits for what is done in the background."""
MEANS = {"automobile": "car", "vehicle": "car", "physician": "doctor"}


class Hanging(WordEmbedder):
    """An embedder that does not answer a query until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def embed(self, texts: Sequence[str], *, input_type: InputType) -> list[list[float]]:
        """Return a vector for each of *texts*."""
        if input_type == "query":
            self.let_go.wait(SECONDS)
        return super().embed(texts, input_type=input_type)


class LongTermMeaningContract:
    """A subclass provides `hf`, `clock` and `provider`, a provider's name or None."""

    @pytest.fixture
    def embedder(self) -> WordEmbedder:
        """Give an embedder that knows some words that mean the same."""
        return WordEmbedder(means=MEANS)

    @pytest.fixture
    def ltm(self, hf: Holdfast, embedder: WordEmbedder, provider: str | None) -> LongTermMemory:
        """Give the memory of a user, compared by meaning."""
        return meaning_of(hf, embedder, provider)

    def test_what_means_the_same_in_other_words_is_recalled(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Drives an automobile")
        kept(ltm, "Likes green tea")
        settled(ltm)

        found = ltm.recall("vehicle", min_relevance=0.1)

        assert found[0].text == "Drives an automobile"
        assert found[0].why["mode"] == "hybrid"
        assert found[0].why["cosine"] is not None

    def test_a_question_that_is_near_in_meaning_hides_no_statement(
        self, ltm: LongTermMemory
    ) -> None:
        ltm.record([said("I drive an automobile")], thread_id="t")
        for number in range(4):
            ltm.record([said("What vehicle do I drive?")], thread_id=f"t{number}")
        settled(ltm)

        for query in ("What vehicle do I drive?", "Which car do I drive?"):
            found = ltm.recall(query, explain=True)
            assert texts(found) == ["I drive an automobile"]
            assert [(each.reason, each.count) for each in found.suppressed] == [("noise", 4)]

    def test_thanks_recall_nothing_however_near_they_are(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Thanks for all that work on my car")])
        settled(ltm)

        assert ltm.recall("Thanks!") == []

    def test_an_item_has_its_vector_when_the_call_returns(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Drives an automobile")
        if ltm.context.vectors and ltm.context.vectors.name in {"sqlite", "pgvector"}:
            assert ltm.status().pending_embedding == 0
        assert settled(ltm).mode == "hybrid"

    def test_turns_are_embedded_in_the_background(self, ltm: LongTermMemory) -> None:
        ltm.record([said("I bought an automobile"), said("It is green")], thread_id="t")
        settled(ltm)

        found = ltm.recall("vehicle", min_relevance=0)

        assert texts(found)[0] == "I bought an automobile"

    def test_a_turn_is_embedded_alone_with_its_caption(
        self, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        turns = [said("What do you drive?"), said("An automobile", caption="a red car")]
        ltm.record(turns, thread_id="t")
        settled(ltm)

        texts = [text for call in embedder.calls for text in call]
        assert texts == ["What do you drive?", "An automobile a red car"]

    def test_a_name_in_the_query_does_not_reach_the_embedder(
        self, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        ltm.record([said("I paint the sea", speaker="Caroline"), said("Lovely", speaker="Bo Ek")])
        settled(ltm)
        embedder.calls.clear()

        ltm.recall("What did Caroline's vehicle cost Bo Ek, Caro?")
        ltm.record([said("I drive", speaker="Zoe")])
        settled(ltm)
        ltm.recall("Does Zoe drive?")

        asked = " ".join(text for call in embedder.calls for text in call if "?" in text)
        assert "vehicle" in asked
        assert "drive" in asked
        assert not any(name in asked for name in ("Caro", "Bo", "Ek", "Zoe"))

    def test_a_query_of_names_alone_reaches_the_embedder(
        self, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        ltm.record([said("I paint the sea", speaker="Caroline")])
        settled(ltm)

        ltm.recall("Who is Caroline?")

        assert embedder.calls[-1] == ("Who is Caroline?",)

    def test_vectors_of_another_form_of_the_texts_are_made_again(
        self, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        ltm.record([said("An automobile")])
        state = settled(ltm)
        context, standing = ltm.context, standing_of(ltm.context)
        assert standing is not None
        earlier = {"model": state.embedding_model, "provider": state.vector_provider, "form": 1}
        place = {"collection": standing.number, **earlier}
        context.engine.write(lambda tx: tx.send(context.job_sql.name_model, **place))
        embedder.calls.clear()

        assert ltm.status().mode == "re-embedding"
        ltm.recall("vehicle")
        assert settled(ltm).mode == "hybrid"
        assert ("An automobile",) in embedder.calls

    def test_a_row_of_a_large_collection_is_found_by_its_meaning_alone(
        self, ltm: LongTermMemory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in ("recall.recall", "transaction"):
            monkeypatch.setattr(f"holdfast.memories.longterm.{module}.LARGE", 3)
        texts_of = ("I bought an automobile", "It is green", "The lake was cold", "We had soup")
        ltm.record([said(text) for text in texts_of], thread_id="t")
        item = kept(ltm, "Sees a physician")
        settled(ltm)

        assert texts(ltm.recall("vehicle", k=1, min_relevance=0)) == ["I bought an automobile"]
        assert ltm.recall("doctor", k=1, min_relevance=0)[0].item == item

    def test_turns_may_be_left_out(
        self, hf: Holdfast, embedder: WordEmbedder, provider: str | None
    ) -> None:
        ltm = meaning_of(hf, embedder, provider, embed_turns=False)
        ltm.record([said("I bought an automobile")])

        assert settled(ltm).pending_embedding == 0
        assert embedder.calls == []

    def test_secrets_do_not_reach_the_embedder(
        self, hf: Holdfast, embedder: WordEmbedder, provider: str | None
    ) -> None:
        ltm = meaning_of(hf, embedder, provider, secrets="redact")
        kept(ltm, "my password is hunter2, and I like tea")
        ltm.recall("is my password hunter2? my password is hunter2")
        settled(ltm)

        assert not any("hunter2," in text for call in embedder.calls for text in call)
        assert not any(text.endswith("is hunter2") for call in embedder.calls for text in call)

    def test_items_that_mean_the_same_are_one(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Drives an automobile")
        settled(ltm)

        again = ltm.remember("Drives an vehicle")

        assert again.outcome == "duplicate"
        assert items(ltm) == ["Drives an automobile"]

    def test_another_number_is_another_item_however_near(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Owns 2 automobile things of the same kind")
        settled(ltm)

        assert ltm.remember("Owns 3 automobile things of the same kind").outcome == "stored"

    def test_a_failing_embedder_loses_no_write(
        self, ltm: LongTermMemory, embedder: WordEmbedder, clock: FrozenClock
    ) -> None:
        embedder.fails = RuntimeError("down")

        kept(ltm, "Drives an automobile")
        ltm.record([said("I bought an automobile")])

        assert texts(ltm.recall("automobile")) != []
        assert ltm.recall("automobile")[0].why["mode"] == "lexical"
        assert ltm.status().reason == "the embedder raised RuntimeError"
        embedder.fails = None
        until(lambda: (clock.tick(2), ltm.flush(0.1).pending == 0)[1])
        assert ltm.status().pending_embedding == 0
        assert ltm.recall("vehicle", min_relevance=0.1)[0].why["mode"] == "hybrid"
        assert ltm.status().reason is None

    def test_what_fails_is_tried_after_1_10_and_60_seconds_and_then_has_failed(
        self, ltm: LongTermMemory, embedder: WordEmbedder, clock: FrozenClock
    ) -> None:
        embedder.fails = RuntimeError("down")
        ltm.record([said("I bought an automobile")])
        for tries, pause in enumerate((1, 10, 60), 1):
            until(lambda tries=tries: jobs(ltm) == [("queued", tries)])
            clock.tick(pause - 0.1)
            ltm.flush(0.1)
            assert len(embedder.calls) == tries
            clock.tick(0.2)
            ltm.flush(0.1)
        until(lambda: jobs(ltm) == [("failed", 4)])

        assert len(embedder.calls) == 4
        assert ltm.status().failed == 1
        embedder.fails = None
        assert ltm.retry() == 1
        assert settled(ltm).failed == 0

    def test_recall_does_not_wait_long_for_a_vector(
        self, hf: Holdfast, provider: str | None
    ) -> None:
        embedder = Hanging()
        ltm = meaning_of(hf, embedder, provider)
        kept(ltm, "Drives an automobile")
        settled(ltm)
        usual, ltm.context.shared.query_seconds = ltm.context.shared.query_seconds, 0.05
        try:
            found = ltm.recall("automobile")
            reason = ltm.status().reason
        finally:
            ltm.context.shared.query_seconds = usual
            embedder.let_go.set()

        assert texts(found) == ["Drives an automobile"]
        assert found[0].why["mode"] == "lexical"
        assert reason == "no vector came within 0.05 s"

    def test_it_is_told_once_that_recall_goes_by_words(
        self, hf: Holdfast, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        kept(ltm, "Drives an automobile")
        settled(ltm)
        types: list[str] = []
        off = hf.events.subscribe(lambda event: types.append(event.type), types=None)
        embedder.fails = RuntimeError("down")

        ltm.recall("automobile")
        ltm.recall("automobile")
        off()

        assert types.count("longterm.degraded") == 1

    def test_another_model_embeds_all_again_and_compares_nothing_across(
        self, hf: Holdfast, ltm: LongTermMemory, provider: str | None
    ) -> None:
        kept(ltm, "Drives an automobile")
        ltm.record([said("I see my physician often")])
        settled(ltm)
        other = WordEmbedder("test:other", size=48, means=MEANS)
        other.fails = RuntimeError("down")

        again = meaning_of(hf, other, provider)
        again.flush(0.2)

        assert again.status().mode == "re-embedding"
        assert texts(again.recall("automobile")) == ["Drives an automobile"]
        other.fails = None
        again.retry()
        while again.flush(0.2).pending:
            # Also what failed just now, which waits from now on.
            tick(hf, again)
        assert settled(again).mode == "hybrid"
        assert settled(again).embedding_model == "test:other"
        assert texts(again.recall("vehicle", min_relevance=0.1))[0] == "Drives an automobile"
        assert texts(again.recall("doctor", min_relevance=0.1))[0] == "I see my physician often"

    def test_what_was_there_before_the_embedder_is_embedded(
        self, hf: Holdfast, embedder: WordEmbedder, provider: str | None
    ) -> None:
        before = memory_of(hf, "ada")
        kept(before, "Drives an automobile")

        ltm = meaning_of(hf, embedder, provider)
        settled(ltm)

        assert texts(ltm.recall("vehicle", min_relevance=0.1)) == ["Drives an automobile"]

    def test_a_changed_text_is_embedded_again(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Drives an automobile")
        settled(ltm)
        ltm.update(item.id, text="Sees a physician")
        settled(ltm)

        assert texts(ltm.recall("doctor", min_relevance=0.1)) == ["Sees a physician"]
        assert ltm.recall("vehicle", min_relevance=0.1) == []

    def test_what_is_forgotten_leaves_no_vector(self, ltm: LongTermMemory) -> None:
        gone = kept(ltm, "Drives an automobile")
        stays = kept(ltm, "Likes green tea")
        settled(ltm)

        ltm.forget(gone.id)

        until(lambda: vector_ids(ltm) == [stays.id])

    def test_forgetting_a_turn_touches_no_vector_but_its_own(
        self, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        turns = ltm.record([said("What do you drive?"), said("An automobile")]).turns
        settled(ltm)
        embedder.calls.clear()
        ltm.forget(turns[0].id)
        settled(ltm)

        assert embedder.calls == []
        until(lambda: vector_ids(ltm) == [turns[1].id])

    def test_clearing_leaves_no_vector(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Drives an automobile")
        settled(ltm)
        ltm.clear()

        until(lambda: vector_ids(ltm) == [])
        kept(ltm, "Drives a vehicle")
        settled(ltm)
        assert texts(ltm.recall("car", min_relevance=0.1)) == ["Drives a vehicle"]

    def test_vectors_of_another_size_are_not_taken(
        self, ltm: LongTermMemory, embedder: WordEmbedder
    ) -> None:
        kept(ltm, "Drives an automobile")
        settled(ltm)
        embedder.size = 32

        kept(ltm, "Likes green tea")

        assert ltm.recall("tea")[0].why["mode"] == "lexical"
        assert len(vector_ids(ltm)) == 1

    def test_users_are_compared_apart(
        self, hf: Holdfast, ltm: LongTermMemory, embedder: WordEmbedder, provider: str | None
    ) -> None:
        kept(ltm, "Drives an automobile")
        settled(ltm)
        other = memory_of(
            hf, "bob", embedder=embedder, options=LongTermOptions(vector_provider=provider)
        )

        assert other.recall("vehicle", min_relevance=0) == []

    def test_it_is_lexical_without_an_embedder(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        kept(ltm, "Drives an automobile")
        settled(ltm)
        plain = memory_of(hf, "ada", embedder=False, options=LongTermOptions(related=False))

        assert plain.status().mode == "lexical"
        assert plain.recall("vehicle") == []
        assert plain.recall("automobile")[0].why["cosine"] is None

    def test_an_unknown_keeper_is_refused_with_the_names_there_are(self, hf: Holdfast) -> None:
        with pytest.raises(InvalidInput, match="sqlite-vec, pgvector, chroma, qdrant, pinecone"):
            meaning_of(hf, WordEmbedder(), "no_such")


def meaning_of(
    hf: Holdfast, embedder: WordEmbedder, provider: str | None, **options: object
) -> LongTermMemory:
    """Return the memory of a user with that embedder and that keeper of vectors."""
    given = LongTermOptions(vector_provider=provider, **options)  # pyright: ignore[reportArgumentType] - of the test's own
    return memory_of(hf, "ada", embedder=embedder, options=given)


def settled(ltm: LongTermMemory):
    """Return how *ltm* stands once nothing waits."""
    assert ltm.flush(SECONDS).pending == 0
    return ltm.status()


def until(so: object, why: Callable[[], object] = str) -> None:
    """Wait until *so*() is true; fail with *why*() if it does not come true."""
    for _ in range(3_000):
        if so():  # type: ignore[operator]
            return
        threading.Event().wait(0.02)
    pytest.fail(f"it did not come true {why()}")


def vector_ids(ltm: LongTermMemory) -> list[str]:
    """Return the ids of all vectors of the collection."""
    standing = standing_of(ltm.context)
    assert standing is not None
    assert ltm.context.vectors is not None
    return list(ltm.context.vectors.ids(standing.id))


def jobs(ltm: LongTermMemory) -> list[tuple[object, ...]]:
    """Return the state of every job of the workspace, and how often it was tried."""
    return ltm.context.engine.rows(
        "select state, attempts from ltm_jobs where workspace = :workspace order by number"
        if ltm.context.engine.dialect == "sqlite"
        else "select state, attempts from ltm_jobs where workspace = %(workspace)s order by number"
    )


def tick(hf: Holdfast, ltm: LongTermMemory) -> None:
    """Let time go by until what failed is tried again."""
    del hf
    clock = ltm.context.clock
    assert isinstance(clock, FrozenClock)
    clock.tick(2)


def spoken(*lines: str) -> list[Turn]:
    """Return turns of the user's."""
    return [said(line) for line in lines]


def stored_bytes(file: Path) -> bytes:
    """Return the bytes of *file*, which are none once it is deleted.

    Of a file of an index of Chroma it is the part with elements: an index without any is written
    as memory that was never initialised (`MALLOC_PERTURB_` shows it), so that the file may hold
    whatever the process held before, of other collections too.
    """
    try:
        found = file.read_bytes()
        if file.name == "data_level0.bin":
            header = file.with_name("header.bin").read_bytes()
            _, _, _, elements, size = struct.unpack_from("<i4Q", header)
            return found[: elements * size]
    except FileNotFoundError:
        return b""
    return found
