"""The page of proof says what was done, what failed, and what was done less than it should."""

import os
import sys
from pathlib import Path

import pytest
from torture.counts import counted
from torture.defects import DEFECTS, Defect, exists
from torture.proof import (
    PROMISES,
    TARGETS,
    Count,
    Outcome,
    Part,
    counts_of,
    found,
    missed,
    page,
    parts,
    read_report,
    run,
)

ABOUT = {"machine": "two cores"}
ENOUGH = [Count(what=what, count=least) for what, least in TARGETS.items() if what != "sabotages"]
NOTICED = [
    Count(what="sabotages", count=1, detail={"broken": f"breaks {n}", "detector": f"test_{n}"})
    for n in range(TARGETS["sabotages"])
]


def outcome(
    name: str,
    *,
    ok: bool = True,
    tests: int = 0,
    failed: tuple[str, ...] = (),
    skipped: tuple[str, ...] = (),
) -> Outcome:
    return Outcome(
        name=name,
        ok=ok,
        seconds=90.0,
        load=(0.5, 1.25),
        tests=tests,
        failed=failed,
        skipped=skipped,
    )


def test_the_page_has_the_counts_the_sabotages_and_the_times() -> None:
    kills = Count(what="kills", count=1_234, test="tests/a.py::test_b")
    counts = [*ENOUGH, *NOTICED, kills]

    text = page([outcome("kills", tests=7)], counts, share=1, planned=1, about=ABOUT)

    assert "1 of 1 parts ran in 2 minutes, and every promise held." in text.splitlines()[2]
    assert "| kills | 11,234 | 10,000 |" in text
    assert "| kills | `a.py::test_b` | 1,234 |" in text
    assert "| breaks 3 | `test_3` |" in text
    assert "| kills | 1.5 | 7 |  |  | 0.50, 1.25 |" in text
    assert "- machine: two cores" in text
    assert all(f"| {each.was} | `{each.test}` |" in text for each in DEFECTS)
    assert "Failed" not in text


def test_the_page_names_what_failed_and_what_was_skipped_and_why() -> None:
    broken = outcome("faults", ok=False, failed=("test_a",), skipped=("test_b: no mount here",))

    text = page([outcome("kills"), broken], ENOUGH, share=1, planned=3, about=ABOUT)

    assert "2 of 3 parts ran in 3 minutes, and **these failed: faults**" in text.splitlines()[2]
    assert "| **faults**: failed | 1.5 |  | 1 | 1 |" in text
    assert "- `test_a`" in text
    assert "- test_b: no mount here" in text


@pytest.mark.parametrize("what", TARGETS)
def test_the_page_says_of_what_too_little_was_done(what: str) -> None:
    counts = [each for each in (*ENOUGH, *NOTICED) if each.what != what]

    assert missed(counts) == [what]
    shown = page([], counts, share=1, planned=0, about=ABOUT).splitlines()[2]
    assert f"Less than it should was done of: {what}." in shown
    tried = page([], counts, share=0.05, planned=0, about=ABOUT).splitlines()[2]
    assert "a share of 0.05" in tried


def test_what_is_counted_is_read_with_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PROOF", str(tmp_path / "counts"))
    here = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]

    counted("kills", 3)
    counted("faults", 4, errno="EIO")

    assert counts_of(tmp_path / "counts") == [
        Count(what="kills", count=3, test=here),
        Count(what="faults", count=4, test=here, detail={"errno": "EIO"}),
    ]


def test_a_program_that_fails_is_named_with_its_last_line(tmp_path: Path) -> None:
    says = "import sys; print('make[2]: *** stopped', file=sys.stderr); sys.exit(2)"
    program = f"import sys; print('1 package could not be checked', file=sys.stderr); {says}"

    broken = run(Part("supply chain", command=(sys.executable, "-c", program)), tmp_path)

    text = page([broken], ENOUGH, share=1, planned=1, about=ABOUT)
    assert not broken.ok
    assert "- supply chain: 1 package could not be checked" in text.splitlines()


def test_a_report_of_pytest_is_read_whole(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="test_a"/>'
        '<testcase name="test_b"><failure message="assert 1 == 2"/></testcase>'
        '<testcase name="test_c"><error message="setup"/></testcase>'
        '<testcase name="test_d"><skipped message="no mount here"/></testcase>'
        '<testcase name="test_e"><skipped message="got empty parameter set for (a)"/></testcase>'
        "</testsuite></testsuites>"
    )

    read = read_report(report, outcome("faults", ok=False))

    assert (read.tests, read.failed) == (5, ("test_b", "test_c"))
    assert read.skipped == ("test_d: no mount here",)


@pytest.mark.parametrize("share", [1, 0.05])
def test_each_part_has_tests_or_a_program(share: float) -> None:
    for part in parts(share):
        assert bool(part.tests) != bool(part.command)
        assert all(found(pattern) for pattern in part.tests)


def test_the_counts_of_the_promises_are_those_of_the_tests() -> None:
    tests = Path(__file__).parents[1]
    files = {*tests.rglob("*.py"), *(tests.parent / "bench").glob("*.py")}
    files -= {Path(__file__), Path(__file__).with_name("proof.py")}
    text = "".join(file.read_text("utf-8") for file in files)

    named = {what for promise in PROMISES for what in promise.counts} | set(TARGETS)

    assert [what for what in sorted(named) if f'"{what}"' not in text] == []


@pytest.mark.parametrize("defect", DEFECTS, ids=[each.was for each in DEFECTS])
def test_a_defect_has_its_test(defect: Defect) -> None:
    assert exists(defect.test)


def test_the_list_of_defects_has_each_once() -> None:
    assert len({each.was for each in DEFECTS}) == len(DEFECTS) >= 30
