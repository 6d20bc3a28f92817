"""Where paths lead, without any store."""

from contextlib import suppress
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ground.errors import ToolRefused
from holdfast.memories.stores.validation import checked_path
from holdfast.tools.files_arguments import as_given, place


@pytest.mark.parametrize("given", ["/memories", "/memories/", "/memories/./", "/memories/a/.."])
def test_the_root_has_many_spellings(given: str) -> None:
    assert place(given, "/agents/7/").is_root
    assert place(given, "/agents/7/").below == "/agents/7/"


def test_a_path_leads_below_the_prefix() -> None:
    found = place("/memories//b/./c/../a.md/", "/agents/7/")

    assert found.path == "/agents/7/b/a.md"
    assert found.below == "/agents/7/b/a.md/"
    assert as_given(found.path, "/agents/7/") == "/memories/b/a.md"


def test_what_lies_above_the_prefix_is_called_the_root() -> None:
    assert as_given("/agents", "/agents/7/") == "/memories"
    assert as_given("/agents/7", "/agents/7/") == "/memories"


def test_a_place_holds_what_is_below_it_and_not_itself() -> None:
    d, inside, beside = (place(f"/memories/{name}", "/") for name in ("d", "d/e", "de"))

    assert d.holds(inside)
    assert not d.holds(d)
    assert not d.holds(beside)
    assert not inside.holds(d)


parts = st.lists(st.sampled_from(["memories", "a", "..", ".", "", "memoriesX", "é", "e\u0301"]))


@given(parts.map("/".join), st.sampled_from(["/", "/p/"]))
def test_no_path_leads_out_of_the_prefix(tail: str, prefix: str) -> None:
    depths = list(accumulate((_step(part) for part in tail.split("/")), initial=0))

    if min(depths) < -1:
        with pytest.raises(ToolRefused, match=r"would escape /memories directory$"):
            place(f"/memories/{tail}", prefix)
        return
    with suppress(ToolRefused):
        found = place(f"/memories/{tail}", prefix)
        assert found.below.startswith(prefix)
        assert found.is_root or checked_path(found.path) == found.path


def _step(part: str) -> int:
    return {"..": -1, ".": 0, "": 0}.get(part, 1)
