"""Dates that a query names, and how close a day is to them."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.longterm.recall.analyze import QueryDate, closeness, dates_in


def asked(year: int | None, month: int, day: int | None) -> QueryDate:
    return QueryDate(year=year, month=month, day=day)


def since_1970(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("on 7 May, 2023", asked(2023, 5, 7)),
        ("on 7 may 2023?", asked(2023, 5, 7)),
        ("the 7th of May", asked(None, 5, 7)),
        ("May 7th, 2023", asked(2023, 5, 7)),
        ("may 7", asked(None, 5, 7)),
        ("in May 2023", asked(2023, 5, None)),
        ("in May of 2023", asked(2023, 5, None)),
        ("in May", asked(None, 5, None)),
        ("at 2023-05-07", asked(2023, 5, 7)),
        ("1 Sept 2022", asked(2022, 9, 1)),
        ("29 February", asked(None, 2, 29)),
        ("她在2023年5月7日去了哪里", asked(2023, 5, 7)),
        ("5月7号", asked(None, 5, 7)),
        ("2023年 5月", asked(2023, 5, None)),
        ("2023년 5월 7일에", asked(2023, 5, 7)),
    ],
)
def test_a_date_is_found_however_it_is_written(text: str, date: QueryDate) -> None:
    assert dates_in(text) == (date,)


@pytest.mark.parametrize(
    "text",
    [
        "what may happen",
        "they march on",
        "31 June",
        "2023-13-01",
        "May I ask?",
        "in 2023",
        "7",
        "5个月",
        "13月",
    ],
)
def test_what_is_no_date_is_not_taken_for_one(text: str) -> None:
    assert dates_in(text) == ()


def test_each_date_is_found_once_in_order() -> None:
    found = dates_in("Between 7 May and June 3rd, or again 7 May?")

    assert found == (asked(None, 5, 7), asked(None, 6, 3))


@pytest.mark.parametrize(
    ("after", "close"),
    [
        (0, 1),
        (1, 1),
        (-1, 1),
        (2, 0.6),
        (10, 0.6),
        (11, 0.2),
        (30, 0.2),
        (31, 0),
        (-2, 0.2),
        (-7, 0.2),
        (-8, 0),
    ],
)
def test_days_are_close_by_how_long_after(after: int, close: float) -> None:
    assert closeness([asked(2023, 5, 15)], since_1970(2023, 5, 15) + after) == close


def test_a_day_without_a_year_is_in_the_year_of_the_row() -> None:
    assert closeness([asked(None, 5, 7)], since_1970(1999, 5, 7)) == 1
    assert closeness([asked(1998, 5, 7)], since_1970(1999, 5, 7)) == 0
    assert closeness([asked(None, 2, 29)], since_1970(2023, 3, 1)) == 0


@pytest.mark.parametrize(
    ("year", "row", "close"),
    [
        (None, (2021, 12, 31), 1),
        (None, (2022, 1, 1), 0.5),
        (2021, (2021, 12, 1), 1),
        (2021, (2022, 1, 31), 0.5),
        (2021, (2023, 1, 1), 0),
        (2022, (2021, 12, 1), 0),
        (None, (2022, 2, 1), 0),
        (None, (2021, 11, 30), 0),
    ],
)
def test_a_month_is_close_to_itself_and_the_next(
    year: int | None, row: tuple[int, int, int], close: float
) -> None:
    assert closeness([asked(year, 12, None)], since_1970(*row)) == close


def test_of_several_dates_the_nearest_counts() -> None:
    day = since_1970(2023, 5, 17)

    assert closeness([asked(2023, 5, 15), asked(2023, 5, 17)], day) == 1
    assert closeness([], day) == 0


@given(st.text())
def test_any_text_can_be_searched_for_dates(text: str) -> None:
    for each in dates_in(text):
        assert 0 <= closeness([each], since_1970(2023, 5, 7)) <= 1
