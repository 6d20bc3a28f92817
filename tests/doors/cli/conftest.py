"""Command lines, run within the test's process on a database of the test's own."""

import io
import sys
from pathlib import Path

import pytest
from doors.cli.lines import Ran, Run

from holdfast.doors.cli.main import main


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "t.db")


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command line as it stands."""
    for name in ("HOLDFAST_DB", "HOLDFAST_API_KEY", "HOLDFAST_STRICT", "HOLDFAST_PUBLIC_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*argv: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(argv)
        shown = capsysbinary.readouterr()
        return Ran(code=code, out=shown.out, err=shown.err.decode())

    return run


@pytest.fixture
def run(line: Run, db: str) -> Run:
    """Run a command line on the test's database; it must succeed."""

    def on_db(*argv: str, stdin: bytes = b"") -> Ran:
        ran = line(*argv, "--db", db, stdin=stdin)
        assert (ran.code, ran.err) == (0, "")
        return ran

    return on_db


@pytest.fixture
def fails(line: Run, db: str) -> Run:
    """Run a command line on the test's database; it must exit 1 with one line and no answer."""

    def on_db(*argv: str, stdin: bytes = b"") -> Ran:
        ran = line(*argv, "--db", db, stdin=stdin)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
        return ran

    return on_db
