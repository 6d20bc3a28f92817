"""Report of an evaluation as a JSON object."""

from collections.abc import Sequence

from holdfast.library.evaluation import UNANSWERABLE, Sample
from holdfast.library.evaluation_evaluate import Outcome
from holdfast.library.evaluation_measures import Figures, LocomoOutcome, figures, mean

Report = dict[str, object]


def report(sample: Sample, outcome: Outcome, *, k: int | None, version: str) -> Report:
    """Return the measures of *outcome*; with *k*, also recall at that depth."""
    every, shipped = sample.conversations, _main(outcome.shipped)
    plain = figures(_main(outcome.plain))
    categories = sorted({each.category for each in outcome.ranked})
    return {
        "file": sample.path,
        "sha256": sample.sha256,
        "version": version,
        "mode": outcome.mode,
        "conversations": len(every),
        "turns": sum(len(each.turns) for each in every),
        "questions": len(outcome.ranked),
        "skipped": sum(each.skipped for each in every),
        "overall": figures(_main(outcome.ranked), k),
        "categories": {
            name: figures([each for each in outcome.ranked if each.category == name], k)
            for name in categories
        },
        "by_conversation": _by_conversation(sample, outcome),
        "as_shipped": figures(shipped, k) | {"empty": mean(not each.found for each in shipped)},
        "foreign": {"n": len(outcome.foreign), "empty": mean(outcome.foreign)},
        "baseline": {name: plain[name] for name in ("recall@5", "recall@10", "mrr")},
        "ms": _milliseconds(sample, outcome),
    }


def _main(every: Sequence[LocomoOutcome]) -> list[LocomoOutcome]:
    return [each for each in every if each.category != UNANSWERABLE]


def _by_conversation(sample: Sample, outcome: Outcome) -> list[Report]:
    """Return the recall of each conversation, in the order of the file."""
    answers: list[list[LocomoOutcome]] = [[] for _ in sample.conversations]
    for each in _main(outcome.ranked):
        answers[each.conversation].append(each)
    return [
        {
            "sample_id": conversation.sample_id,
            "n": len(its),
            "recall@10": figures(its)["recall@10"],
        }
        for conversation, its in zip(sample.conversations, answers, strict=True)
    ]


def _milliseconds(sample: Sample, outcome: Outcome) -> Figures:
    """Return milliseconds per inserted turn and per question (p50, p95)."""
    turns = sum(len(each.turns) for each in sample.conversations)
    asking = sorted(outcome.asking) or [0.0]

    def at(share: float) -> float:
        return round(1_000 * asking[min(len(asking) - 1, int(share * len(asking)))], 4)

    insert = round(1_000 * outcome.inserting / max(turns, 1), 4)
    return {"insert": insert, "query_p50": at(0.5), "query_p95": at(0.95)}
