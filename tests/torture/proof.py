"""Attack everything that the product promises, and write what came of it to `docs/proof.md`.

    python -m torture.proof

is `make proof`. HOLDFAST_PROOF_SHARE, such as 0.05, does that share of it to try it out, and
HOLDFAST_PROOF_PARTS, such as `kills,faults`, some parts; the page is then written to a temporary
file, unless HOLDFAST_PROOF_PAGE names another.
"""

import os
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
from torture.defects import DEFECTS, ROOT
from torture.sabotage import SABOTAGES

TARGETS = {
    "power cuts": 5_000,
    "kills": 10_000,
    "faults": 2_000,
    "failovers": 10,
    "operations judged linearizable": 50_000,
    "authorisation": 1_000,
    "sabotages": len(SABOTAGES),
}
"""The least that a whole run counts, by what is counted."""


class Part(msgspec.Struct, frozen=True):
    """One run of tests, or of another program, and how much it is to do."""

    name: str
    tests: tuple[str, ...] = ()
    """Patterns of files and folders below `tests/`."""
    environment: Mapping[str, str] = {}
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """A program in place of tests."""


def parts(share: float) -> list[Part]:
    """Return what a run does, of which *share* is done."""

    def scaled(number: int) -> str:
        return str(max(1, round(number * share)))

    whole = {"HOLDFAST_TORTURE_LIVES": "1"} if share == 1 else {}
    full = {"HOLDFAST_EXAMPLES": "full"} if share == 1 else {}
    surfaces = {"HOLDFAST_ALL_SURFACES": "1"} if share == 1 else {}
    return [
        Part(
            "power loss",
            ("torture/test_power_loss.py",),
            {"HOLDFAST_TORTURE_CUTS": scaled(5_000)},
        ),
        Part(
            "kills",
            (
                "torture/test_killed.py",
                "torture/test_durable_killed.py",
                "torture/test_longterm_killed.py",
            ),
            {"HOLDFAST_TORTURE_LIVES": scaled(3_600)},
        ),
        Part("runs killed and stopped", ("torture/test_runs_*.py",), whole),
        Part(
            "faults",
            ("torture/test_fault*.py", "memories/durable/test_faults.py"),
            {"HOLDFAST_TORTURE_FAULTS": scaled(2_000)} | full,
        ),
        Part(
            "PostgreSQL",
            ("torture/test_postgres*.py",),
            {"HOLDFAST_TORTURE_LIVES": scaled(500)},
        ),
        Part(
            "linearizability",
            ("torture/test_linearizability.py",),
            {"HOLDFAST_TORTURE_SECONDS": scaled(120)},
        ),
        Part(
            "authorisation",
            ("doors/test_authorisation*.py", "memories/longterm/test_isolation.py"),
        ),
        Part(
            "poisoning", ("library/evaluation/test_attacks.py", "memories/longterm/test_trust.py")
        ),
        Part(
            "backups and restores",
            ("torture/test_restore_drill.py", "library/upkeep"),
            {"HOLDFAST_TORTURE_RESTORES": scaled(30)},
        ),
        Part(
            "erasure",
            (
                "library/erasure",
                "memories/durable/test_no_bytes_left.py",
                "memories/durable/test_forgotten_everywhere.py",
                "memories/longterm/test_no_bytes_left.py",
                "memories/test_chain.py",
            ),
        ),
        Part(
            "contracts on every surface",
            ("contracts", "servers", "tools", "doors/adapters"),
            surfaces,
        ),
        Part("random input", ("",), full, ("-m", "hypothesis")),
        Part("sabotages", ("torture/test_sabotage.py",)),
        Part(
            "soak",
            command=(sys.executable, "bench/soak.py", "--minutes", str(max(0.5, 10 * share))),
        ),
        Part("supply chain", command=("make", "audit")),
    ]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a part; *load* is runnable tasks for each core, before and after."""

    name: str
    ok: bool
    seconds: float
    load: tuple[float, float]
    tests: int = 0
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    reason: str = ""
    """Last line that a failed program wrote to its standard error, without those of make."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file of counts."""

    what: str
    count: int
    test: str = ""
    detail: dict[str, Any] = {}


def counts_of(file: Path) -> list[Count]:
    """Return the lines of the file of counts, if it is there."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Count) for line in file.read_bytes().splitlines()]


def run(part: Part, folder: Path) -> Outcome:
    """Do a part; its output is that of this process, its counts go to a file in *folder*."""
    report, begun = folder / "report.xml", monotonic()
    report.unlink(missing_ok=True)
    command = [*part.command] or [
        *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "--timeout", "7200"),
        *(f"--junitxml={report}", *part.options),
        *(str(file) for pattern in part.tests for file in found(pattern)),
    ]
    counts = {"HOLDFAST_PROOF": str(folder / "counts"), "PYTHONDONTWRITEBYTECODE": ""}
    before = load()
    sys.stdout.write(f"\n== {part.name}\n")
    sys.stdout.flush()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **counts, **part.environment},
        stderr=subprocess.PIPE if part.command else None,
        text=True,
        check=False,
    )
    sys.stderr.write(done.stderr or "")
    lines = [each for each in (done.stderr or "").splitlines() if not each.startswith("make")]
    outcome = Outcome(
        name=part.name,
        ok=done.returncode == 0,
        seconds=monotonic() - begun,
        load=(before, load()),
        reason=lines[-1].strip() if done.returncode and lines else "",
    )
    return read_report(report, outcome) if report.exists() else outcome


def found(pattern: str) -> list[Path]:
    """Return the files and folders below `tests/` of a pattern; one that has none is an error."""
    tests = ROOT / "tests"
    there = sorted(tests.glob(pattern)) if pattern else [tests]
    if not there:
        raise FileNotFoundError(f"tests/{pattern}")
    return there


def read_report(report: Path, outcome: Outcome) -> Outcome:
    """Return *outcome* with what the report of pytest has."""
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [name_of(each) for each in cases if each.find("failure") is not None]
    failed += [name_of(each) for each in cases if each.find("error") is not None]
    reasons = [
        f"{name_of(case)}: {each.get('message', '')}"
        for case in cases
        for each in case.iter("skipped")
        # A list of cases of the long form that is empty in the short form.
        if "empty parameter set" not in each.get("message", "")
    ]
    return msgspec.structs.replace(
        outcome, tests=len(cases), failed=tuple(failed), skipped=tuple(reasons)
    )


def name_of(case: ET.Element) -> str:
    """Return the test of a case of a report."""
    return case.get("name", "")


def load() -> float:
    """Return the runnable tasks of the last minute, for each core."""
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A promise, how it was attacked, and which counts are of it."""

    text: str
    attack: str
    counts: tuple[str, ...] = ()


PROMISES = (
    Promise(
        text="A write that returned survives the end of its process, of the machine and its power",
        attack="Every write, sync, truncation and change of a name is recorded, of the library,"
        " a server, a mount, its spool, checkpoints and exports, and replayed to disks as they may"
        " look after a cut: pieces of 512 bytes that were not synced are kept, lost or torn, names"
        " are lost with their folder's sync. Each disk is opened, compared with what was"
        " acknowledged, verified and written to. Writers of eight threads, processes that create a"
        " database, servers and owners of runs are killed.",
        counts=(
            "power cuts",
            "kills",
            "acknowledged writes compared after a kill",
            "kills in the middle of a run",
            "postgres stops",
            "failovers",
        ),
    ),
    Promise(
        text="An error says whether it was written, and the next write works",
        attack="The n-th write, sync, read, truncation or opening of a file fails, once or for"
        " good, with a full disk, a full quota, an I/O error, too many files or a part of the"
        " bytes; connections are cut at every byte of a commit, back ends cancelled.",
        counts=("faults", "cut connections", "cancelled back ends"),
    ),
    Promise(
        text="All clients see each key as one register",
        attack="Threads, processes and two servers act on the same keys, some are killed; the"
        " histories are checked for linearizability, after the checker has refused wrong ones.",
        counts=("operations judged linearizable",),
    ),
    Promise(
        text="A run has one owner",
        attack="Owners are killed at every request, tool and version, and stopped past their"
        " lease: another goes on, nothing is requested twice, the former owner writes nothing.",
        counts=("kills in the middle of a run", "owners of runs stopped past their lease"),
    ),
    Promise(
        text="Owners are held apart",
        attack="Every route, tool, resource and page with every kind of credential: the status,"
        " what was changed, and whether anything of others is in the response. Raw connections to"
        " PostgreSQL under row-level security read and write other owners' rows.",
        counts=("authorisation",),
    ),
    Promise(
        text="What was forgotten is in no file",
        attack="Marks of forgotten texts are looked for in every file of the database, after every"
        " way to forget, after kills, and in restored backups.",
        counts=("erased texts looked for in every file",),
    ),
    Promise(
        text="A memory is data, and says who said it",
        attack="Sentences that give orders, by each channel, with a mining model that is fooled"
        " and with one that is not.",
        counts=("poisoning",),
    ),
    Promise(
        text="A backup comes back",
        attack="Backups while writers go on; the database is destroyed, and the backup restored"
        " into either engine: all that was acknowledged before it is there, of one moment, and"
        " no one who was forgotten since. Backups and restores are killed, and run out of disk.",
        counts=(
            "restores compared",
            "acknowledged writes compared after a restore",
            "restores killed",
            "backups killed",
            "restores on a full disk",
        ),
    ),
    Promise(
        text="The history of a store is complete",
        attack="`holdfast verify` recomputes the chain of hashes after every cut, kill, fault and"
        " restore above; rows that were taken out, swapped or edited must be found.",
    ),
    Promise(
        text="All surfaces behave alike",
        attack="The contracts run on SQLite in memory and on disk, on PostgreSQL and through HTTP.",
    ),
    Promise(
        text="A server stays as it is",
        attack="A steady load over fixed data: memory, descriptors, threads and the log.",
        counts=("requests in the soak",),
    ),
)

NOT_COVERED = """
A disk that acknowledges a sync and loses it, or changes bytes later: `verify` finds the latter, and
nothing brings them back but a backup.

Power losses of PostgreSQL's own files: its processes are killed, its log is trusted, and most
servers of the tests run without fsync.

Other systems than Linux, and the order in which a particular file system makes changes durable: the
replay allows more orders than any of them.

Several machines: servers, clients and standbys of the tests are processes of one.

Operations over several keys: a history is checked key by key, in rounds of some hundred operations.

The time that a refusal takes, as a way to learn what exists.

Sentences that are not in the suite, and what real models do with them.

More than ten minutes of load at once.

Weaknesses of dependencies that have no entry in the advisories of PyPI.
"""


def total(counts: Sequence[Count]) -> Counter[str]:
    """Return the sums of *counts*."""
    sums = Counter[str]()
    for each in counts:
        sums[each.what] += each.count
    return sums


def missed(counts: Sequence[Count]) -> list[str]:
    """Return what was counted less often than a whole run is to."""
    sums = total(counts)
    return [what for what, least in TARGETS.items() if sums[what] < least]


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(str(each).replace('|', chr(92) + '|') for each in row)} |"


def page(
    outcomes: Sequence[Outcome],
    counts: Sequence[Count],
    *,
    share: float,
    planned: int,
    about: Mapping[str, str],
) -> str:
    """Return the page for what was done; *about* is the state of the code and the machine."""
    return "\n".join([*_lines(outcomes, counts, share, planned, about), ""])


def _lines(
    outcomes: Sequence[Outcome],
    counts: Sequence[Count],
    share: float,
    planned: int,
    about: Mapping[str, str],
) -> Iterator[str]:
    sums, failed = total(counts), [each for each in outcomes if not each.ok]
    yield "# Proof"
    yield ""
    yield _verdict(outcomes, counts, share, planned)
    yield ""
    yield "## What was done"
    yield ""
    others = sorted(set(sums) - set(TARGETS))
    rows = [
        (what, f"{sums[what]:,}", f"{TARGETS[what]:,}" if what in TARGETS else "")
        for what in (*TARGETS, *others)
    ]
    yield from table(("attack", "done", "at least"), rows)
    yield ""
    by_test = Counter[tuple[str, str]]()
    for each in counts:
        by_test[each.what, each.test.rpartition("/")[2]] += each.count
    rows = [(what, f"`{test}`", f"{count:,}") for (what, test), count in sorted(by_test.items())]
    shown = [row for row in rows if row[0] in TARGETS and row[0] != "sabotages"]
    yield from table(("attack", "test", "done"), shown)
    yield ""
    yield "## How each promise was attacked"
    yield ""
    yield from table(
        ("promise", "attack", "counts"),
        [
            (each.text, each.attack, ", ".join(f"{sums[what]:,} {what}" for what in each.counts))
            for each in PROMISES
        ],
    )
    yield ""
    yield "## Sabotaged builds"
    yield ""
    yield (
        "Each protection was taken away in a copy of the package, and the test that checks it"
        " failed; it passes on the copy as it is."
    )
    yield ""
    noticed = [each.detail for each in counts if each.what == "sabotages"]
    yield from table(
        ("what the build does", "test that failed"),
        [(each["broken"], f"`{each['detector']}`") for each in noticed],
    )
    yield ""
    yield "## Time, machine and load"
    yield ""
    for name, value in about.items():
        yield f"- {name}: {value}"
    yield ""
    yield from table(
        ("part", "minutes", "tests", "failed", "skipped", "load a core, before and after"),
        [
            (
                each.name if each.ok else f"**{each.name}**: failed",
                f"{each.seconds / 60:.1f}",
                each.tests or "",
                len(each.failed) or ("" if each.ok else "yes"),
                len(each.skipped) or "",
                f"{each.load[0]:.2f}, {each.load[1]:.2f}",
            )
            for each in outcomes
        ],
    )
    yield ""
    yield from _listed("Failed:", [f"`{test}`" for each in outcomes for test in each.failed])
    whole = [f"{each.name}: {each.reason}" if each.reason else each.name for each in failed]
    yield from _listed("Failed as a whole:", whole)
    yield from _listed("Skipped:", [reason for each in outcomes for reason in each.skipped])
    yield "## Not covered"
    yield ""
    for each in NOT_COVERED.strip().split("\n\n"):
        yield f"- {' '.join(each.split())}"
    yield ""
    yield "## Defects found"
    yield ""
    yield f"{len(DEFECTS)} of those that were found, each with the test that holds its correction."
    yield ""
    yield from table(("defect", "test"), [(each.was, f"`{each.test}`") for each in DEFECTS])


def _listed(title: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield title
        yield ""
        for each in entries:
            yield f"- {each}"
        yield ""


def _verdict(
    outcomes: Sequence[Outcome], counts: Sequence[Count], share: float, planned: int
) -> str:
    """Return the first paragraph of the page."""
    failed = [each.name for each in outcomes if not each.ok]
    minutes = f"{sum(each.seconds for each in outcomes) / 60:.0f} minutes"
    held = f"**these failed: {', '.join(failed)}**" if failed else "every promise held"
    sentence = (
        "`make proof` attacks what Holdfast promises, and writes this page."
        f" {len(outcomes)} of {planned} parts ran in {minutes}, and {held}."
    )
    if share != 1:
        return f"{sentence} They did a share of {share:g}, to try the attacks out."
    if less := missed(counts):
        return f"{sentence} **Less than it should was done of: {', '.join(less)}.**"
    return sentence


def about_this() -> dict[str, str]:
    """Return the state of the code, the day, and the machine."""
    machine = runpy.run_path(str(ROOT / "bench" / "machine.py"))["here"]()
    git = ["git", "-C", str(ROOT)]
    commit = _output([*git, "rev-parse", "--short", "HEAD"])
    changed = _output([*git, "status", "--porcelain", "-uno", "--", "holdfast"])
    state = version("holdfast") + (f", commit {commit}" if commit else "")
    return {
        "code": f"{state}, with changes that are not committed" if changed else state,
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{machine.cpu}, {machine.cores} cores, {machine.memory_mb:,} MiB,"
        f" {machine.file_system}",
        "software": f"Linux {machine.kernel}, {machine.python}, SQLite {machine.sqlite}",
    }


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def main() -> int:
    """Do all parts, write the page after each, and return 0 if everything held."""
    share = float(os.environ.get("HOLDFAST_PROOF_SHARE", "1"))
    wanted = os.environ.get("HOLDFAST_PROOF_PARTS", "").split(",")
    planned = [each for each in parts(share) if any(name in each.name for name in wanted)]
    whole = share == 1 and wanted == [""]
    folder = Path(tempfile.mkdtemp(prefix="holdfast-proof-"))
    place = ROOT / "docs" / "proof.md" if whole else folder / "proof.md"
    place = Path(os.environ.get("HOLDFAST_PROOF_PAGE", place))
    outcomes, about = list[Outcome](), about_this()
    for part in planned:
        outcomes.append(run(part, folder))
        counts = counts_of(folder / "counts")
        text = page(outcomes, counts, share=share, planned=len(planned), about=about)
        place.write_text(text, "utf-8")
    sys.stdout.write(f"\n{place}\n")
    held = all(each.ok for each in outcomes)
    return 0 if held and not (whole and missed(counts_of(folder / "counts"))) else 1


if __name__ == "__main__":
    sys.exit(main())
