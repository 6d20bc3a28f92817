from datetime import UTC, datetime

import pytest
from doors.http.asking import Asker
from msgspec.structs import replace

from holdfast.doors.http.params import (
    Name,
    fixed,
    flag,
    instant,
    integer,
    read_query,
    several,
    text,
)
from holdfast.ground.errors import InvalidInput

NAMES = {
    name.wire: name
    for name in (
        integer("limit"),
        fixed("sort", "path"),
        flag("all"),
        text("from"),
        several("statuses[]", "statuses"),
        replace(instant("created_at[gte]"), library="created_at_gte"),
    )
}


def read(raw: bytes, names: dict[str, Name] = NAMES) -> dict[str, object]:
    return read_query(raw, names, strict=False)


def test_an_order_that_lists_do_not_have_is_refused_with_the_one_they_have(
    ask: Asker, store: str
) -> None:
    by_age = ask.get(f"/v1/memory_stores/{store}/memories?order_by=created_at")
    newest = ask.get(f"/v1/memory_stores/{store}/memories?order_by=path&order=desc")
    by_path = ask.get(f"/v1/memory_stores/{store}/memories?order_by=path&order=asc")

    assert "order_by: must be path" in by_age.error["message"]
    assert "order: must be asc" in newest.error["message"]
    assert by_path.status == 200


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"limit=5&all=true", {"limit": 5, "all": True}),
        (b"from=a+b%2B%2F&&", {"from": "a b+/"}),
        (b"statuses%5B%5D=idle&statuses[]=running", {"statuses": ["idle", "running"]}),
        (b"beta=true&order_by=path&beta=false", {}),
        (b"sort=path", {}),
        (b"created_at[gte]=2026-01-02", {"created_at_gte": datetime(2026, 1, 2, tzinfo=UTC)}),
        (
            b"created_at%5Bgte%5D=2026-01-02T03:04:05.6%2B01:00",
            {"created_at_gte": datetime(2026, 1, 2, 2, 4, 5, 600_000, tzinfo=UTC)},
        ),
        (
            b"created_at[gte]=2026-01-02t03:04z",
            {"created_at_gte": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)},
        ),
    ],
)
def test_known_names_are_read(raw: bytes, told: dict[str, object]) -> None:
    assert read(raw) == told


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"limit=", "limit"),
        (b"limit=1.0", "limit"),
        (b"limit=%D9%A1", "limit"),
        (b"limit=+1", "limit"),
        (b"limit=99999999999999999999", "limit"),
        (b"limit=1&limit=1", "limit"),
        (b"sort=age", "sort"),
        (b"sort=path&sort=path", "sort"),
        (b"all=True", "all"),
        (b"all=1", "all"),
        (b"from=%FF", "from"),
        (b"from=%00", "from"),
        (b"%FF=1", "query"),
        (b"created_at[gte]=yesterday", "created_at[gte]"),
        (b"created_at[gte]=2026-02-30", "created_at[gte]"),
        (b"created_at[gte]=2026-W01-1", "created_at[gte]"),
        (b"created_at[gte]=0001-01-01T00:00:00%2B01:00", "created_at[gte]"),
        (b"created_at[gte]=9999-12-31T23:59:59-01:00", "created_at[gte]"),
        (b"created_at[gte]=2026-01-01T00:00:60Z", "created_at[gte]"),
    ],
)
def test_what_is_wrong_is_named(raw: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(raw)

    assert refused.value.field == field


def test_an_integer_that_is_too_long_is_not_called_something_else() -> None:
    with pytest.raises(InvalidInput, match=r"limit: is out of range"):
        read(b"limit=99999999999999999999")


def test_what_is_required_is_missed() -> None:
    with pytest.raises(InvalidInput, match=r"q: is required"):
        read(b"", {"q": replace(text("q"), required=True)})


def test_an_unknown_name_is_passed_over_in_the_contract_and_refused_in_ours(
    ask: Asker, store: str
) -> None:
    theirs = ask.get(f"/v1/memory_stores/{store}?beta=true")
    ours = ask.get("/api/me?beta=true")

    assert (theirs.status, ours.status) == (200, 400)
    assert ours.error["field"] == "beta"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "depth=2",
        "view=all",
        "view=basic&view=basic",
        "page=x",
        "path_prefix=a",
        "order_by=created_at",
        "order_by=path&order=desc",
        "order=DESC",
    ],
)
def test_a_bad_list_is_refused(ask: Asker, store: str, query: str) -> None:
    said = ask.get(f"/v1/memory_stores/{store}/memories?{query}")

    assert (said.status, said.error["type"]) == (400, "invalid_request_error")
