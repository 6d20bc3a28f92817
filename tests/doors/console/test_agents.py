"""Pages of agents: entries, hydration, history, limits, export, and forgetting an agent."""

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote
from zipfile import ZipFile

import pytest
from doors.console.client import HOSTILE, ConsoleClient, Shown

import holdfast
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory

SignedIn = Callable[..., ConsoleClient]
AGENT = "/console/agents/agent_7"


@pytest.fixture
def durable(hf: Holdfast) -> DurableMemory:
    return hf.durable("agent_7")


def entry(key: str) -> str:
    return f"{AGENT}/entries/{quote(key, safe='')}"


def edit(content: str, seq: int, **more: str) -> dict[str, str]:
    fields = {"category": "core", "own_category": "", "tags": "", "shown": str(seq)}
    return {**fields, "content": content, **more}


def rows(shown: Shown, label: str) -> int:
    """Return how many rows the table *label* has."""
    body = shown.html.split(f'aria-label="{label}"', 1)[1].split("</table>", 1)[0]
    return body.count("<tr") - 1


# The list, and one agent


def test_without_agents_the_list_says_how_one_comes(visitor: ConsoleClient) -> None:
    assert "hf.durable" in visitor.get("/console/agents").text


def test_the_list_shows_agents_by_name(hf: Holdfast, visitor: ConsoleClient) -> None:
    for name in ("zoe", "bob"):
        hf.durable(name).set("k", "v", category="core")

    shown = visitor.get("/console/agents")

    links = [each for each in shown.page.links if each.startswith("/console/agents/")]
    assert links == ["/console/agents/bob", "/console/agents/zoe"]
    assert shown.named("table", aria_label="Agents")


def test_all_agents_are_reached_by_next_page(hf: Holdfast, visitor: ConsoleClient) -> None:
    for n in range(120):
        hf.durable(f"agent_{n:03}").set("k", "v", category="core")

    seen: list[str] = []
    target: str | None = "/console/agents"
    while target:
        shown = visitor.get(target)
        found = [each for each in shown.page.links if each.startswith("/console/agents/agent")]
        assert len(found) <= 50
        seen += found
        target = next((a["href"] for a in shown.named("a") if "data-next" in a), None)

    assert len(set(seen)) == len(seen) == 120


def test_an_agent_without_entries_has_a_page_that_says_how_they_come(
    visitor: ConsoleClient,
) -> None:
    shown = visitor.get(AGENT)

    assert shown.status == 200
    assert "memory_store" in shown.text


def test_a_name_that_no_agent_can_have_is_refused(visitor: ConsoleClient) -> None:
    assert visitor.get("/console/agents/%20").status == 400


def test_entries_are_filtered_by_category_tag_words_and_prefix(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("deploy_target", "fly.io", category="core", tags=["infra"])
    durable.set("owner", "Ada", category="notes")

    for query in ("category=core", "tag=infra", "words=FLY", "prefix=deploy"):
        shown = visitor.get(f"{AGENT}?{query}")
        assert entry("deploy_target") in shown.page.links
        assert entry("owner") not in shown.page.links
    assert "No entry fits" in visitor.get(f"{AGENT}?words=nothing").text


def test_entries_of_the_workspace_are_marked(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("rule", "Be brief", category="workspace")

    assert "badge accent" in visitor.get(AGENT).html
    assert "badge accent" in visitor.get(entry("rule")).html


def test_an_entry_of_the_workspace_behind_an_own_one_is_shown_and_forgotten_apart(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("rule", "Be brief", category="workspace")
    durable.set("rule", "Be thorough", category="core")
    behind = f"{entry('rule')}?scope=workspace"

    assert {behind, entry("rule")} <= set(visitor.get(AGENT).page.links)
    shown = visitor.get(behind)
    assert "Be brief" in shown.html.split('aria-label="Content"', 1)[1].split("</section>", 1)[0]
    assert "its own entry" in shown.text
    assert "Edit" not in shown.text
    target = f"{entry('rule')}/forget?scope=workspace"
    assert visitor.post(target, {"confirmation": "rule"}).status == 200
    (left,) = durable.list()
    assert left.content == "Be thorough"


# One entry


def test_an_entry_is_created_from_the_form(durable: DurableMemory, visitor: ConsoleClient) -> None:
    fields = {"key": "note", "content": "one\r\ntwo", "category": "core", "tags": "b\r\na"}

    shown = visitor.follow(visitor.post(f"{AGENT}/new", {**fields, "own_category": ""}))

    assert "The entry was created." in shown.text
    stored = durable.get("note")
    assert stored is not None
    assert (stored.content, stored.tags) == ("one\ntwo", ("a", "b"))
    assert stored.updated_by.actor.id == "user_console"


def test_an_entry_has_a_category_of_its_own(durable: DurableMemory, visitor: ConsoleClient) -> None:
    fields = {"key": "note", "content": "x", "category": "core", "tags": "", "own_category": "mine"}
    visitor.post(f"{AGENT}/new", fields)

    stored = durable.get("note")
    assert stored is not None
    assert stored.category == "mine"


def test_a_key_that_is_taken_keeps_what_was_typed(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("note", "theirs", category="core")
    fields = {"key": "note", "content": "mine", "category": "daily", "tags": "x"}

    shown = visitor.post(f"{AGENT}/new", {**fields, "own_category": ""})

    assert shown.status == 409
    assert "mine" in shown.text
    assert "selected" in shown.named("option", value="daily")[0]
    assert entry("note") in shown.page.links
    stored = durable.get("note")
    assert stored is not None
    assert stored.content == "theirs"


def test_the_field_that_is_wrong_is_marked(visitor: ConsoleClient) -> None:
    fields = {"key": " x", "content": "c", "category": "core", "tags": "", "own_category": ""}

    shown = visitor.post(f"{AGENT}/new", fields)

    assert shown.status == 400
    assert shown.named("input", name="key", aria_invalid="true", value=" x")


def test_an_entry_shows_content_explanation_and_history(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("owner", "Ada", category="core")
    durable.set("owner", "Grace", category="core")

    shown = visitor.get(entry("owner"))

    assert shown.named("section", aria_label="Content")
    assert durable.explain("owner").text in shown.text
    assert rows(shown, "History") == 2


def test_an_edit_is_saved_and_undone(durable: DurableMemory, visitor: ConsoleClient) -> None:
    seq = durable.set("owner", "Ada", category="core").seq

    shown = visitor.follow(visitor.post(entry("owner"), edit("Grace", seq)))

    assert "The entry was saved." in shown.text
    (undo,) = shown.named("form", action=f"{entry('owner')}/restore")[:1]
    assert undo["action"]
    visitor.post(f"{entry('owner')}/restore", {"seq": str(seq)})
    stored = durable.get("owner")
    assert stored is not None
    assert stored.content == "Ada"


def test_an_edit_against_a_concurrent_write_loses_neither(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    seq = durable.set("owner", "Ada", category="core").seq
    durable.set("owner", "theirs", category="core")

    shown = visitor.post(entry("owner"), edit("mine", seq))

    assert shown.status == 409
    assert shown.named("div", role="alert")
    assert shown.named("table", aria_label="Changes")
    area = shown.html.split('name="content"', 1)[1].split("</textarea>", 1)[0]
    assert area.endswith("\nmine")
    stored = durable.get("owner")
    assert stored is not None
    assert stored.content == "theirs"


def test_what_was_typed_is_there_again_after_a_lapsed_sign_in(
    hf: Holdfast, durable: DurableMemory, visitor: ConsoleClient
) -> None:
    seq = durable.set("owner", "Ada", category="core").seq
    secret = hf.keys.create("admin", scope="admin").secret or ""

    (kept,) = visitor.post(entry("owner"), edit("mine", seq)).named("input", name="kept")
    durable.set("owner", "theirs", category="core")
    shown = visitor.post("/console/sign-in", {"key": secret, "kept": kept["value"] or ""})

    area = shown.html.split('name="content"', 1)[1].split("</textarea>", 1)[0]
    assert area.endswith("\nmine")
    # Saving it again does not overwrite what was written meanwhile.
    (seen,) = shown.named("input", name="shown")
    assert seen["value"] == str(seq)


def test_line_ends_stay_as_they_were(durable: DurableMemory, visitor: ConsoleClient) -> None:
    seq = durable.set("owner", "a\r\nb", category="core").seq

    assert visitor.get(f"{entry('owner')}?edit=1").named("input", name="ends", value="crlf")
    visitor.post(entry("owner"), edit("a\r\nc", seq, ends="crlf"))

    stored = durable.get("owner")
    assert stored is not None
    assert stored.content == "a\r\nc"


def test_an_entry_is_forgotten_once_confirmed(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("owner", "a secret sentence", category="core")
    assert visitor.get(f"{entry('owner')}?confirm=forget").named("dialog")

    wrong = visitor.post(f"{entry('owner')}/forget", {"confirmation": "x", "confirm": "forget"})
    assert wrong.status == 400
    assert wrong.named("dialog")
    assert durable.get("owner") is not None

    shown = visitor.post(f"{entry('owner')}/forget", {"confirmation": "owner"})
    assert "Receipt" in shown.text
    assert "no byte of it is left" in shown.text
    assert "owner" not in shown.text
    assert "secret" not in shown.text
    assert durable.get("owner") is None


def test_a_receipt_is_downloaded(durable: DurableMemory, visitor: ConsoleClient) -> None:
    stored = durable.set("owner", "Ada", category="core")
    shown = visitor.post(f"{entry('owner')}/forget", {"confirmation": "owner"})
    (link,) = [each for each in shown.page.links if "/forget/receipt" in each]

    file = visitor.get(link)

    receipt = json.loads(file.body)
    assert file.headers["content-type"] == "application/json"
    assert receipt["counts"] == {"durable_entries": 1}
    assert receipt["ids"] == [stored.id]
    assert receipt["pending"] == []
    assert visitor.get("/console/forget/receipt?count=x").status == 400


def test_a_forgotten_entry_says_so_and_one_never_stored_is_missing(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("owner", "Ada", category="core")
    durable.forget("owner")

    shown = visitor.get(entry("owner"))

    assert shown.status == 200
    assert "was forgotten" in shown.text
    assert visitor.get(entry("nothing")).status == 404


def test_a_change_is_redacted_once_confirmed(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    seq = durable.set("owner", "first words", category="core").seq
    durable.set("owner", "Ada", category="core")
    fields = {"redact": str(seq)}
    assert f"change {seq}" in visitor.get(f"{entry('owner')}?redact={seq}").text

    assert visitor.post(f"{entry('owner')}/redact", {**fields, "confirmation": "x"}).status == 400
    shown = visitor.post(f"{entry('owner')}/redact", {**fields, "confirmation": f"change {seq}"})

    assert "Receipt" in shown.text
    first = list(durable.history("owner"))[-1]
    assert first.content is None
    assert first.redacted_at is not None
    assert "first words" not in visitor.get(entry("owner")).text


# Hydration


def test_a_hydration_shows_what_is_in_what_is_left_out_and_why(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("small", "x" * 40, category="core")
    durable.set("large", "y" * 400, category="notes")
    hydration = durable.hydrate(100)

    shown = visitor.get(f"{AGENT}/hydration?budget=100&why=large")

    assert rows(shown, "In") == len(hydration.entries) == 1
    assert rows(shown, "Left out") == len(hydration.omitted) == 1
    assert shown.text.count(durable.explain("large", 100).text) == 2
    assert hydration.digest in shown.text
    assert "Of 100 bytes 49 are pinned (core entries), 0 windowed and 51 free." in shown.text
    assert "1 entry is in, 1 is left out: 410 bytes in all" in shown.text
    assert "2 entries are in, none is left out." in visitor.get(f"{AGENT}/hydration").text
    assert shown.named("figure", aria_label="Budget")
    assert " ".join(hydration.render().split()) in shown.text


def test_two_budgets_are_compared(durable: DurableMemory, visitor: ConsoleClient) -> None:
    durable.set("small", "x" * 40, category="core")
    durable.set("large", "y" * 400, category="notes")

    assert "in at 1,000" in visitor.get(f"{AGENT}/hydration?budget=100&other=1000").text
    assert "out at 100" in visitor.get(f"{AGENT}/hydration?budget=1000&other=100").text


def test_a_budget_that_is_no_number_is_marked(visitor: ConsoleClient) -> None:
    shown = visitor.get(f"{AGENT}/hydration?budget=much")

    assert shown.status == 400
    assert shown.named("input", name="budget", aria_invalid="true", value="much")


def test_long_hydrations_are_paged(durable: DurableMemory, visitor: ConsoleClient) -> None:
    durable.set_many({"key": f"k{n}", "content": "v", "category": "core"} for n in range(130))

    seen, target = 0, f"{AGENT}/hydration"
    while target:
        shown = visitor.get(target)
        assert rows(shown, "In") <= 50
        seen += rows(shown, "In")
        target = next((a["href"] or "" for a in shown.named("a") if "data-next" in a), "")

    assert seen == 130


def test_what_the_model_sees_is_downloaded(durable: DurableMemory, visitor: ConsoleClient) -> None:
    durable.set("owner", "Ada", category="core")

    file = visitor.get(f"{AGENT}/hydration/text")

    assert file.body.decode() == durable.hydrate().render()
    assert file.headers["content-security-policy"] == "sandbox"


# History, limits, export


def test_the_history_is_filtered_by_operation(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("owner", "Ada", category="core")
    durable.set("owner", "Grace", category="core")

    assert rows(visitor.get(f"{AGENT}/history"), "History") == 2
    assert rows(visitor.get(f"{AGENT}/history?op=replace"), "History") == 1
    assert "No change fits" in visitor.get(f"{AGENT}/history?op=evict").text
    assert visitor.get(f"{AGENT}/history?op=x").status == 400


def test_limits_are_saved_and_an_empty_one_is_the_workspaces(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    empty: dict[str, str] = dict.fromkeys(
        ("cap", "run_cap", "content_bytes", "budget", "daily_hours"), ""
    )

    shown = visitor.follow(visitor.post(f"{AGENT}/limits", {**empty, "budget": "2,000"}))
    assert "The limits were saved." in shown.text
    assert durable.limits().budget == 2_000

    visitor.post(f"{AGENT}/limits", empty)
    assert durable.limits().budget == 262_144


def test_a_lower_cap_evicts_only_where_that_is_ticked(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set_many({"key": f"k{n}", "content": "v", "category": "notes"} for n in range(3))
    fields: dict[str, str] = dict.fromkeys(
        ("run_cap", "content_bytes", "budget", "daily_hours"), ""
    )

    refused = visitor.post(f"{AGENT}/limits", {**fields, "cap": "2"})
    assert refused.status == 409
    assert refused.named("input", name="cap", value="2")
    assert visitor.post(f"{AGENT}/limits", {**fields, "cap": "2", "evict": "1"}).status == 303
    assert len(list(durable.list())) == 2
    assert visitor.post(f"{AGENT}/limits", {**fields, "cap": "some"}).status == 400


def test_the_export_is_one_archive_of_markdown(
    durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("owner", "Ada", category="core")

    file = visitor.get(f"{AGENT}/export")

    assert file.headers["content-type"] == "application/zip"
    with ZipFile(io.BytesIO(file.body)) as archive:
        texts = [archive.read(each).decode() for each in archive.namelist()]
    assert any("Ada" in each for each in texts)


# Forgetting an agent


def test_an_agent_is_forgotten_once_confirmed(
    hf: Holdfast, durable: DurableMemory, visitor: ConsoleClient
) -> None:
    durable.set("owner", "Ada", category="core")
    page = visitor.get("/console/forget?agent=agent_7")
    assert "1 entry" in page.text
    assert "/console/search?q=agent_7" in page.page.links

    for wrong in ("", "agent_8"):
        shown = visitor.post("/console/forget?agent=agent_7", {"confirmation": wrong})
        assert shown.status == 400
    assert durable.get("owner") is not None

    shown = visitor.post("/console/forget?agent=agent_7", {"confirmation": "agent_7"})
    assert "Receipt" in shown.text
    assert "durable_entries" in shown.text
    assert not list(hf.durable_agents())
    again = visitor.post("/console/forget?agent=agent_7", {"confirmation": "agent_7"})
    assert again.status == 404


def test_one_person_or_one_agent_is_forgotten_at_a_time(visitor: ConsoleClient) -> None:
    assert visitor.get("/console/forget").status == 200
    assert visitor.get("/console/forget?user=ada&agent=bob").status == 400


def test_forgotten_bytes_are_in_no_file(tmp_path: Path, runner: asyncio.Runner) -> None:
    secret = "a-most-particular-sentence"
    with holdfast.open(tmp_path / "h.db") as hf:
        app = make_app(hf, make_site=Console)
        visitor = ConsoleClient(app, runner)
        hf.durable("agent_7").set("owner", secret, category="core")
        visitor.post(f"{entry('owner')}/forget", {"confirmation": "owner"})

        files = [each.read_bytes() for each in tmp_path.iterdir()]
        app.state.close()
    assert not any(secret.encode() in each for each in files)


# Rights


def test_a_reader_sees_no_acts_and_is_refused_all_of_them(
    durable: DurableMemory, signed_in: SignedIn
) -> None:
    seq = durable.set("owner", "Ada", category="core").seq
    reader = signed_in("read")

    for target in (AGENT, entry("owner"), f"{AGENT}/limits"):
        shown = reader.get(target)
        for word in ("New entry", "Edit", "Forget", "Save"):
            assert word not in shown.text
    assert reader.get(f"{AGENT}/new").status == 403
    assert reader.get("/console/forget?agent=agent_7").status == 403
    for target, fields in (
        (f"{AGENT}/new", {"key": "k", "content": "c", "category": "core", "tags": ""}),
        (entry("owner"), edit("x", seq)),
        (f"{entry('owner')}/restore", {"seq": str(seq)}),
        (f"{entry('owner')}/forget", {"confirmation": "owner"}),
        (f"{entry('owner')}/redact", {"redact": str(seq), "confirmation": f"change {seq}"}),
        (f"{AGENT}/limits", {"cap": "5"}),
        ("/console/forget?agent=agent_7", {"confirmation": "agent_7"}),
    ):
        assert reader.post(target, fields).status == 403, target
    stored = durable.get("owner")
    assert stored is not None
    assert stored.content == "Ada"


def test_a_writer_edits_and_forgets_but_neither_redacts_nor_limits(
    durable: DurableMemory, signed_in: SignedIn
) -> None:
    seq = durable.set("owner", "Ada", category="core").seq
    writer = signed_in("write")

    assert writer.post(entry("owner"), edit("Grace", seq)).status == 303
    fields = {"redact": str(seq), "confirmation": f"change {seq}"}
    assert writer.post(f"{entry('owner')}/redact", fields).status == 403
    assert writer.post(f"{AGENT}/limits", {"cap": "5"}).status == 403
    assert "Redact" not in writer.get(entry("owner")).text
    assert "Forget this agent" not in writer.get(AGENT).text
    shown = writer.post(f"{entry('owner')}/forget", {"confirmation": "owner"})
    assert shown.status == 200
    changed = next(iter(durable.history()))
    assert changed.actor.actor.id == "user_write-key"


def test_a_bound_key_sees_its_agent_alone(hf: Holdfast, signed_in: SignedIn) -> None:
    for agent in ("agent_7", "agent_8"):
        hf.durable(agent).set("k", "v", category="core")
    bound = signed_in("admin", agent="agent_7")

    for below in ("", "/hydration", "/history", "/limits", "/export", "/new", "/entries/k"):
        assert bound.get(f"{AGENT}{below}").status == 200
        assert bound.get(f"/console/agents/agent_8{below}").status == 403
    assert bound.get("/console/agents").status == 403
    links = bound.get(AGENT).page.links
    assert "/console/agents" not in links
    assert "/console/forget?agent=agent_7" not in links


# Every page


def test_hostile_texts_change_no_element(hf: Holdfast, visitor: ConsoleClient) -> None:
    def skeleton(agent: str, text: str) -> list[list[str]]:
        key = normalize("NFC", text)
        label = key.encode()[:60].decode("utf-8", "ignore").strip()
        here = f"/console/agents/{agent}"
        durable = hf.durable(agent)
        durable.set(key, "first", category="core", tags=["a"])
        durable.set(key, text, category=label, tags=[label])
        segment = quote(key, safe="")
        pages = (
            here,
            f"{here}?words={segment}&tag={quote(label, safe='')}",
            f"{here}/entries/{segment}",
            f"{here}/entries/{segment}?edit=1",
            f"{here}/entries/{segment}?confirm=forget",
            f"{here}/hydration?why={segment}",
            f"{here}/history?key={segment}",
        )
        shown = [visitor.get(each) for each in pages]
        assert {each.status for each in shown} == {200}
        return [each.skeleton for each in shown]

    plain = skeleton("agent_p", "plain")
    for n, text in enumerate(HOSTILE):
        assert skeleton(f"agent_{n}", text) == plain


def test_pages_are_the_same_on_postgresql(postgres_url: str, runner: asyncio.Runner) -> None:
    with holdfast.open(postgres_url) as hf:
        app = make_app(hf, make_site=Console)
        visitor = ConsoleClient(app, runner)
        hf.durable("agent_7").set("k", "v", category="core")
        for below in ("", "/hydration", "/history", "/limits", "/export", "/entries/k"):
            assert visitor.get(f"{AGENT}{below}").status == 200
        assert AGENT in visitor.get("/console/agents").page.links
        assert visitor.get("/console/forget?agent=agent_7").status == 200
        shown = visitor.post("/console/forget?agent=agent_7", {"confirmation": "agent_7"})
        assert "only the server's owner can clear them" in shown.text
        app.state.close()


def test_a_proposal_is_shown_by_entry_and_accepted(
    hf: Holdfast, visitor: ConsoleClient, durable: DurableMemory
) -> None:
    durable.set("office", "The office is in Porto", category="core")
    durable.set("office_2", "The office is in Porto", category="core")
    here = visitor.post(f"{AGENT}/proposals").location
    job = hf.consolidations.wait(here.rpartition("/")[2])
    (change,) = job.proposal.changes

    shown = visitor.get(here)
    assert "office_2" in shown.text
    visitor.follow(visitor.post(f"{here}/accept", {"change": [change.id]}))
    assert [each.key for each in durable.list().data] == ["office_2"]
    assert job.id in visitor.get(f"{AGENT}/proposals").text
