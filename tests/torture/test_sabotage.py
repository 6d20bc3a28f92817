"""Each detector notices a sabotaged build; the sabotages still fit the code.

`make proof` runs the detectors, each on a copy of the package as it is and on a sabotaged one.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from torture.counts import counted
from torture.defects import exists
from torture.sabotage import SABOTAGES, Sabotage

ROOT = Path(__file__).parents[2]
IDS = [each.broken for each in SABOTAGES]


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=IDS)
def test_a_sabotage_fits_the_code_and_its_test_exists(sabotage: Sabotage) -> None:
    text = (ROOT / "holdfast" / sabotage.file).read_text("utf-8")

    assert text.count(sabotage.old) == 1
    assert sabotage.old != sabotage.new
    assert exists(sabotage.test)


def failures(build: Path, test: str) -> list[str]:
    """Run *test* against the package in *build*; return what failed in it.

    The processes that tests start import the package of *build* too.
    """
    report = build / "report.xml"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "HOLDFAST_"))
    } | {"PYTHONPATH": str(build), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider"]
    options = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}"]
    done = subprocess.run(
        [*command, *options, str(ROOT / test)],
        cwd=build,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    assert int(suite.get("tests", "0")) > int(suite.get("skipped", "0")), "no test ran"
    assert int(suite.get("errors", "0")) == 0, done.stdout
    return [each.get("message", "") for each in suite.iter("failure")]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("sabotage", SABOTAGES if "HOLDFAST_PROOF" in os.environ else [])
def test_a_sabotaged_build_is_noticed(sabotage: Sabotage, tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(ROOT / "holdfast", build / "holdfast")
    file = build / "holdfast" / sabotage.file
    assert failures(build, sabotage.test) == []

    file.write_text(file.read_text("utf-8").replace(sabotage.old, sabotage.new), "utf-8")
    found = failures(build, sabotage.test)

    assert found, f"{sabotage.test} passes though {sabotage.broken}"
    assert re.search(sabotage.says, found[0])
    said = " ".join(found[0].split())[:160]
    counted("sabotages", 1, broken=sabotage.broken, detector=sabotage.test, said=said)
