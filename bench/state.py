"""What does a network's state cost beyond the JSON that it keeps?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import gc
import tracemalloc
from collections.abc import Callable
from time import perf_counter_ns

import msgspec
from conversation import room
from kept_turns import keeping
from measure import Bench, Timing, main, paired
from networked import running

from holdfast import InferenceResult, NetworkState, Usage, messages

VALUES = 20_000
RESULTS = 1_000
MANY = 10
"""How many times as many results show whether a history takes as many times as long."""

_VALUE = {
    "id": "ticket-1041",
    "title": "Deploy Friday?",
    "owner": "ada",
    "tags": ["ops", "release"],
    "votes": {"yes": 3, "no": 1},
    "score": 0.75,
    "open": True,
    "closed_at": None,
    "seen": [104, 118],
    "next": "Ask for the key first.",
}
"""200 bytes of JSON, as tools leave it for the next agent."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def timed(count: int, work: Callable[[], object]) -> Timing:
    """Return what one of *count* acts took, which are all that *work* does."""
    begun = perf_counter_ns()
    work()
    return Timing(each=(perf_counter_ns() - begun) / count)


def result(number: int) -> InferenceResult:
    """Return a result of 2 KB, with a call of a tool, as one agent's turn leaves it."""
    text = "The deploy waits for the key that Ada keeps in the second safe of the office. "
    return InferenceResult(
        agent="writer",
        input=f"Write part {number}.",
        output=[messages.assistant(text * 4)],
        tool_calls=[
            messages.result(
                f"call_{number}",
                "search",
                {"query": "where is the key", "limit": 5},
                data={"found": ["safe", "office", "Ada"], "more": False},
            )
        ],
        raw=text * 9,
        run_id="run_1",
        index=number,
        model="writer-1",
        usage=Usage(requests=2, input_tokens=512, output_tokens=128, tool_calls=1),
    )


def values(bench: Bench) -> None:
    """Write and read a small value, against its JSON there and back."""
    count, state = bench.size(VALUES, 500), NetworkState()

    def ours() -> None:
        for _ in range(count):
            state.kv.set("ticket", _VALUE)
            state.kv.get("ticket")

    def theirs() -> None:
        for _ in range(count):
            _decode(_encode(_VALUE))

    rounds = paired(lambda: timed(count, ours), lambda: timed(count, theirs), bench.rounds)
    bench.cost("kv.set and kv.get, 200 bytes", "msgspec, encode and decode", 4, rounds)


def there_and_back(bench: Bench, state: NetworkState) -> None:
    """Write and read a whole state, against the JSON of the same results."""
    plain, text = state.to_dict()["results"], state.to_json()

    def ours() -> None:
        NetworkState.from_json(state.to_json())

    def theirs() -> None:
        _decode(_encode(plain))

    assert NetworkState.from_json(text).to_json() == text
    rounds = paired(lambda: timed(1, ours), lambda: timed(1, theirs), bench.rounds)
    bench.cost("to_json and from_json", "msgspec, encode and decode", 6, rounds)


def history(bench: Bench, state: NetworkState) -> None:
    """Format ten times as many results, against ten times as long."""
    more = NetworkState(results=state.results * MANY)
    rounds = paired(
        lambda: timed(1, more.format_history),
        lambda: timed(1, lambda: [state.format_history() for _ in range(MANY)]),
        bench.rounds,
    )
    count = len(state.results)
    what = f"format_history of {count * MANY:,} results"
    bench.cost(what, f"{MANY} times that of {count:,}", 1.3, rounds)


def memory(bench: Bench, text: str) -> None:
    """Hold a state that was read, against the size of its JSON."""
    found: list[float] = []
    for _ in range(2):
        gc.collect()
        tracemalloc.start()
        state = NetworkState.from_json(text)
        gc.collect()
        found.append(tracemalloc.get_traced_memory()[0] / len(text.encode()))
        tracemalloc.stop()
        del state
    bench.amount("memory of a state", "its JSON", 4, "times", found)


def run(bench: Bench) -> None:
    """Measure values, whole states, histories, memory, room, threads, and runs of networks."""
    assert len(_encode(_VALUE)) == 200
    state = NetworkState(results=[result(each) for each in range(bench.size(RESULTS, 50))])
    values(bench)
    there_and_back(bench, state)
    history(bench, state)
    memory(bench, state.to_json())
    room(bench)
    keeping(bench)
    running(bench)


if __name__ == "__main__":
    main("state", __doc__ or "", run)
