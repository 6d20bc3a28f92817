"""Recall and hydration as the pages show them, beside what the API returns."""

from collections.abc import Iterator, Sequence
from math import isclose

import pytest
from doors.console.browser.bakery import api, bakery
from doors.console.browser.conftest import ConsoleSite
from playwright.sync_api import Locator, Page, expect

from holdfast import LongTermMemory, Recalled, recalled_block
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.browser
SCORE_WIDTH = 183
"""Pixels of a score of 1."""
COLUMNS = "each => [...each.cells].map((cell) => cell.innerText.trim())"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with bakery(tmp_path_factory.mktemp("recall") / "h.db") as site:
        yield site


@pytest.fixture
def hf(site: ConsoleSite) -> Iterator[Holdfast]:
    with api(site) as hf:
        yield hf


@pytest.fixture
def ada(hf: Holdfast) -> LongTermMemory:
    memory = hf.longterm("ada", enabled=True)
    assert memory is not None
    return memory


def rows(page: Page, table: str) -> Locator:
    """Return the rows of the body of a table."""
    return page.get_by_role("table", name=table, exact=True).locator("tbody tr")


def cells(found: Locator) -> list[list[str]]:
    """Return the texts of each row, by column."""
    return [each.evaluate(COLUMNS) for each in found.all()]


def ids(found: Locator) -> list[str]:
    """Return the ids that the rows link to."""
    links = found.locator("td[data-label=Text] a")
    return [str(each.get_attribute("href")).rpartition("/")[2] for each in links.all()]


def expect_results(found: Locator, results: Sequence[Recalled]) -> None:
    """Expect the rows of *results*, in order, with their numbers and bars."""
    expect(found).to_have_count(len(results))
    assert ids(found) == [each.id for each in results]
    for rank, (row, result) in enumerate(zip(found.all(), results, strict=True), 1):
        shown = row.evaluate(COLUMNS)
        assert shown[0] == str(rank)
        assert shown[1] == result.text
        numbers = (result.similarity, result.recency, result.importance, result.relevance)
        assert shown[3:7] == [f"{each:.2f}" for each in numbers]
        assert shown[7].startswith(result.why.get("text", ""))
        expect_bar(row, result)


def expect_bar(row: Locator, result: Recalled) -> None:
    """Expect a bar whose parts are the weighted signals and add up to the score."""
    parts = (0.7 * result.similarity, 0.2 * result.recency, 0.1 * result.importance)
    assert isclose(sum(parts), result.score, abs_tol=1e-6)
    said = f"Score: {result.score:.2f} = {' + '.join(f'{each:.2f}' for each in parts)}"
    bar = row.get_by_role("img", name=said)
    expect(bar).to_be_visible()
    drawn = bar.locator("rect").evaluate_all(
        "found => found.map((each) => [each.x.baseVal.value, each.width.baseVal.value])"
    )
    assert len(drawn) == sum(each > 0 for each in parts)
    starts = [x for x, _ in drawn[1:]] + [drawn[-1][0] + drawn[-1][1] + 1]
    ends = [SCORE_WIDTH * sum(parts[:n]) for n in range(1, len(parts) + 1)]
    assert all(isclose(x, end, abs_tol=1) for x, end in zip(starts, ends, strict=True))


def test_results_are_those_of_the_api_in_order_with_parts_that_add_up(
    page: Page, site: ConsoleSite, ada: LongTermMemory
) -> None:
    results = ada.recall("tea in the morning", touch=False)
    page.goto(site.at("/console/people/ada/recall?q=tea in the morning"))

    assert results
    expect_results(rows(page, "Results"), results)
    block = page.get_by_role("region", name="Block")
    text = recalled_block(results)
    assert block.locator("pre").inner_text().strip() == text.strip()
    size = block.locator(".size").first.get_attribute("title")
    assert size == f"{len(text.encode()):,} B"
    details = rows(page, "Results").first.locator("details")
    details.locator("summary").click()
    names = details.locator("dt").all_inner_texts()
    assert {"terms", "lexical", "cosine", "coverage"} <= set(names)


def test_what_is_beyond_the_first_results_is_listed_with_its_reason(
    page: Page, site: ConsoleSite, ada: LongTermMemory
) -> None:
    everything = ada.recall("tea in the morning", 50, min_relevance=0, touch=False)
    results = ada.recall("tea in the morning", 2, touch=False)
    page.goto(site.at("/console/people/ada/recall?q=tea in the morning&k=2"))

    expect_results(rows(page, "Results"), results)
    taken = {each.id for each in results}
    left = [each for each in everything if each.id not in taken]
    assert ids(rows(page, "Left out")) == [each.id for each in left]
    plain, noisy = (
        {each.id for each in ada.recall("tea in the morning", 50, noise=noise, touch=False)}
        for noise in (False, True)
    )
    said = {id: f"says the same as {n}" for n, each in enumerate(results, 1) for id in each.also}
    said |= dict.fromkeys(noisy - plain, "is no statement, or the query itself")
    assert len(said) >= 2
    for shown, each in zip(cells(rows(page, "Left out")), left, strict=True):
        under = f"relevance {each.relevance:.2f}".replace("0.", ".") + " is under .06"
        beyond = under if each.relevance < 0.06 else "beyond the first k"
        assert shown[7] == said.get(each.id, beyond)


def test_a_query_that_reaches_too_little_says_so_of_each(
    page: Page, site: ConsoleSite, ada: LongTermMemory
) -> None:
    everything = ada.recall("zeppelin tea", 50, min_relevance=0, touch=False)
    assert ada.recall("zeppelin tea", min_relevance=0.99, touch=False) == []
    page.goto(site.at("/console/people/ada/recall?q=zeppelin tea&min_relevance=0.99"))

    expect(rows(page, "Results")).to_have_count(0)
    assert ids(rows(page, "Left out")) == [each.id for each in everything]
    reasons = {shown[7] for shown in cells(rows(page, "Left out"))}
    assert reasons == {"nothing reached the minimum relevance .99"}


def test_looking_leaves_no_mark(page: Page, site: ConsoleSite, hf: Holdfast) -> None:
    before = hf.longterm_data("ada").get(site.seeded.item)
    page.goto(site.at("/console/people/ada/recall?q=oolong"))
    expect(rows(page, "Results").first).to_be_visible()

    assert hf.longterm_data("ada").get(site.seeded.item) == before


@pytest.mark.parametrize("budget", [100_000, 900, 60])
def test_a_hydration_is_that_of_the_api(
    page: Page, site: ConsoleSite, hf: Holdfast, budget: int
) -> None:
    durable = hf.durable("baker")
    hydration = durable.hydrate(budget)
    page.goto(site.at(f"/console/agents/baker/hydration?budget={budget}"))

    taken = cells(rows(page, "In"))
    said = {each.key: durable.explain(each.key, budget) for each in durable.list().data}
    assert [row[1] for row in taken] == [each.key for each in hydration.entries]
    assert [row[0] for row in taken] == [f"{said[each.key].rank:,}" for each in hydration.entries]
    assert exact(page, "In", "Size") == [each.size_bytes for each in hydration.entries]
    assert exact(page, "In", "Left before") == [
        said[each.key].left_before for each in hydration.entries
    ]
    left = cells(rows(page, "Left out"))
    assert [row[0] for row in left] == [each.key for each in hydration.omitted]
    assert [row[3] for row in left] == [said[each.key].text for each in hydration.omitted]
    assert exact(page, "Left out", "Size") == [each.size_bytes for each in hydration.omitted]
    figure = page.get_by_role("figure", name="Budget")
    pinned = sum(each.size_bytes for each in hydration.entries if each.category == "core")
    rest = hydration.size_bytes - pinned
    free = budget - hydration.size_bytes
    words = f"{pinned:,} are pinned (core entries), {rest:,} windowed and {free:,} free"
    expect(figure).to_contain_text(words)
    seen = page.get_by_role("region", name="What the model sees")
    expect(seen).to_contain_text(hydration.digest)
    if rendered := hydration.render():
        assert seen.locator("pre").inner_text().strip() == rendered.strip()


def exact(page: Page, table: str, column: str) -> list[int]:
    """Return the exact bytes in the titles of a column."""
    found = rows(page, table).locator(f'td[data-label="{column}"] .size')
    titles = [str(each.get_attribute("title")) for each in found.all()]
    return [int(each.removesuffix(" B").replace(",", "")) for each in titles]


def test_rows_that_another_budget_decides_differently_are_marked(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    durable = hf.durable("baker")
    small = {each.key for each in durable.hydrate(900).entries}
    large = {each.key for each in durable.hydrate(100_000).entries}
    page.goto(site.at("/console/agents/baker/hydration?budget=900&other=100000"))

    marked = rows(page, "Left out").filter(has_text="in at 100,000")
    expect(marked).to_have_count(len(large - small))
    page.get_by_role("textbox", name="Why this key?").fill("no_such_key")
    page.get_by_role("button", name="Recalculate").click()
    expect(page.get_by_role("region", name="Why no_such_key")).to_contain_text(
        durable.explain("no_such_key", 900).text
    )
