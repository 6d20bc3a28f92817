"""Counters, gauges and histograms, and their text."""

from threading import Thread

import pytest

from holdfast.ground.metrics import MetricRegistry, flat_lines


@pytest.fixture
def registry() -> MetricRegistry:
    return MetricRegistry()


def test_a_sample_with_known_labels_is_there_before_its_first_event(
    registry: MetricRegistry,
) -> None:
    registry.counter("plain_total", "Plain.")
    registry.counter("labelled_total", "Labelled.", kind=("a", "b"), outcome=("ok",))
    registry.counter("unknown_total", "Unknown.", kind=())
    registry.counter("some_total", "Some.", kind=(), outcome=()).begin([("a", "ok")])

    assert registry.flat() == {
        "plain_total": 0,
        'labelled_total{kind="a",outcome="ok"}': 0,
        'labelled_total{kind="b",outcome="ok"}': 0,
        'some_total{kind="a",outcome="ok"}': 0,
    }


def test_ticks_and_additions_of_one_sample_are_one_number(registry: MetricRegistry) -> None:
    counter = registry.counter("reads_total", "Reads.", result=("hit", "miss"))
    hit = counter.ticker("hit")

    hit()
    hit()
    counter.add("hit", by=3)

    assert (counter.value("hit"), counter.value("miss")) == (5, 0)
    assert counter.value("hit") == 5, "looking at a counter leaves it as it is"


def test_threads_lose_no_event(registry: MetricRegistry) -> None:
    counter = registry.counter("reads_total", "Reads.", result=("hit", "miss"))
    hit = counter.ticker("hit")

    def count() -> None:
        for _ in range(2_000):
            hit()
            counter.add("miss")

    threads = [Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert (counter.value("hit"), counter.value("miss")) == (8_000, 8_000)


def test_a_gauge_falls_too(registry: MetricRegistry) -> None:
    gauge = registry.gauge("waiting", "Waiting.")

    gauge.add(by=2)
    gauge.add(by=-1)
    assert gauge.value() == 1

    gauge.set(0.5)
    assert list(registry.lines("x_")) == [
        "# HELP x_waiting Waiting.",
        "# TYPE x_waiting gauge",
        "x_waiting 0.500000",
    ]


def test_a_bucket_holds_its_bound_and_all_below(registry: MetricRegistry) -> None:
    seconds = registry.histogram("seconds", "Seconds.", (1, 2.5), mode=("fast", "slow"))

    for number in (1, 1.5, 2.5, 9):
        seconds.observe(number, "fast")

    flat = registry.flat()
    assert {name: flat[name] for name in flat if "fast" in name} == {
        'seconds_bucket{mode="fast",le="1"}': 1,
        'seconds_bucket{mode="fast",le="2.5"}': 3,
        'seconds_bucket{mode="fast",le="+Inf"}': 4,
        'seconds_sum{mode="fast"}': 14,
        'seconds_count{mode="fast"}': 4,
    }
    assert flat['seconds_count{mode="slow"}'] == 0


def test_a_label_is_escaped(registry: MetricRegistry) -> None:
    registry.counter("turns_total", "Turns.", agent=()).add('the "pilot"\\\n')

    assert list(registry.lines(""))[-1] == 'turns_total{agent="the \\"pilot\\"\\\\\\n"} 1'


def test_flat_numbers_have_the_type_that_their_names_say(registry: MetricRegistry) -> None:
    registry.histogram("sizes", "Sizes.", (1,)).observe(1)

    lines = list(flat_lines("x_", {"writes_total": 2, "readers": 0, **registry.flat()}))

    assert lines == [
        "# TYPE x_writes_total counter",
        "x_writes_total 2",
        "# TYPE x_readers gauge",
        "x_readers 0",
        "# TYPE x_sizes histogram",
        'x_sizes_bucket{le="1"} 1',
        'x_sizes_bucket{le="+Inf"} 1',
        "x_sizes_sum 1",
        "x_sizes_count 1",
    ]
