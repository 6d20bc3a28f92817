"""What holds with the SDK at hand holds with the oldest one."""

import subprocess
from pathlib import Path

from wire.serving import environment

HERE = Path(__file__).parent


def test_the_oldest_sdk_passes_every_test_of_the_newest(oldest: Path) -> None:
    alone = ("-p", "no:cacheprovider", "--confcutdir", HERE)

    run = subprocess.run(
        [oldest, "-m", "pytest", *alone, HERE / "sdk"],
        cwd=HERE.parents[1],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
