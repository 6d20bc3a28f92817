"""What do poisoned texts achieve in long-term memory, with tiers and holding and without?

By channel also with a model that is fooled and with one that is not.

`--json FILE` writes the report too. All cases run each time; `--quick` and `--rounds` change
nothing, since shares do not depend on the machine.
"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import argparse
from pathlib import Path

import msgspec

from holdfast.library.attacks import CHANNEL_MODES, CHANNEL_RATES, RATES, evaluate, failures


def run(kept: Path | None) -> int:
    """Print each rate of each class, and write the report to *kept*."""
    report = evaluate()
    rows = [
        {"what": name, "of": rate, "before": found["before"][rate], "after": found["after"][rate]}
        for name, found in report["classes"].items()
        for rate in RATES
    ]
    channels = [
        {"what": name, "of": rate, **{model: found[model][rate] for model in CHANNEL_MODES}}
        for name, found in report["channels"].items()
        for rate in CHANNEL_RATES
    ]
    for row in rows:
        print(f"{row['what']} / {row['of']}: {row['before']:.2f} before, {row['after']:.2f} after")
    for row in channels:
        shares = ", ".join(f"{row[model]:.2f} {model}" for model in CHANNEL_MODES)
        print(f"{row['what']} / {row['of']}: {shares}")
    missed = failures(report)
    print("\n".join(missed) or "every class is within its limits")
    if kept is not None:
        kept.write_bytes(
            msgspec.json.encode({**report, "rows": [*rows, *channels], "missed": missed})
        )
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    raise SystemExit(run(parser.parse_args().json))
