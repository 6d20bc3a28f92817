"""Many files, and many programs at once, in one mount."""

import subprocess
import sys

import pytest
from doors.mount.real.calls import listing
from doors.mount.real.mounting import eventually
from doors.mount.real.place import SECONDS, Place

pytestmark = pytest.mark.fuse

MANY = 300
PROGRAMS = 16


def put(place: Place, count: int, roof: str = "") -> None:
    """Put memories elsewhere, and wait until the mount shows them."""
    for number in range(count):
        place.put(f"{roof}{number:03}.md", f"{number}\n")
    eventually(lambda: len(listing(place.dir / roof)) == count)


def at_once(place: Place, script: str, programs: int = PROGRAMS) -> list[int]:
    """Run *script* in many shells at once, `$0` a number of its own; return how they ended."""
    running = [
        subprocess.Popen(["bash", "-c", script, str(number)], cwd=place.dir)
        for number in range(programs)
    ]
    return [each.wait(SECONDS) for each in running]


@pytest.mark.parametrize(
    "way", ["rm -r d", "find d -delete", "rsync -a --delete empty/ d/; rm -r d"]
)
def test_a_large_directory_is_removed_whole_while_it_is_read(place: Place, way: str) -> None:
    (place.dir / "empty").mkdir()
    put(place, MANY, "d/")

    place.sh(way)

    assert listing(place.dir) == ["empty"]
    assert place.kept() == {}


def test_a_large_directory_is_listed_and_read_whole(place: Place) -> None:
    put(place, MANY)

    said = place.sh("ls | wc -l; ls -lU | wc -l; cat *.md | wc -l; grep -rl 7 . | wc -l")

    sevens = sum("7" in str(number) for number in range(MANY))
    assert said.split() == [str(MANY), str(MANY + 1), str(MANY), str(sevens)]


def test_every_file_of_many_programs_is_saved_once(place: Place) -> None:
    codes = at_once(place, "for n in 1 2 3 4 5; do echo $0 > $0-$n; done")

    assert codes == [0] * PROGRAMS
    assert place.kept() == {f"{p}-{n}": f"{p}\n" for p in range(PROGRAMS) for n in range(1, 6)}
    assert len(place.told()) == 5 * PROGRAMS


def test_of_many_programs_that_replace_one_file_each_is_a_version(place: Place) -> None:
    place.given("a.md", "begin")

    codes = at_once(place, "echo $0 > $0.tmp; mv $0.tmp a.md")

    assert codes == [0] * PROGRAMS
    assert place.told() == ["created a.md", *(["modified a.md"] * PROGRAMS)]
    assert listing(place.dir) == ["a.md"]


def test_of_many_programs_that_append_every_line_is_there_once(place: Place) -> None:
    codes = at_once(place, "for n in 1 2 3 4 5; do echo $0 $n >> log; done")

    assert codes == [0] * PROGRAMS
    lines = (place.content("log") or "").splitlines()
    assert sorted(lines) == sorted(f"{p} {n}" for p in range(PROGRAMS) for n in range(1, 6))
    assert (place.dir / "log").read_text() == place.content("log")


def test_of_many_programs_that_make_one_name_one_does(place: Place) -> None:
    for script in ("set -C; echo $0 2> /dev/null > lock", "mkdir 2> /dev/null directory"):
        assert sorted(at_once(place, script)) == [0, *([1] * (PROGRAMS - 1))]

    assert place.told() == ["created lock"]


def test_of_many_programs_that_lock_a_file_each_counts_once(place: Place) -> None:
    place.given("count", "0")

    codes = at_once(place, "exec 9<> count; flock 9; read -u9 n; echo $((n + 1)) > count")

    assert codes == [0] * PROGRAMS
    assert place.content("count") == f"{PROGRAMS}\n"
    assert len(place.told()) == PROGRAMS + 1


def test_programs_that_write_one_file_over_and_over_leave_one_of_theirs_whole(place: Place) -> None:
    script = "for n in {1..10}; do printf '%01000d' $0 > a.md; done"

    codes = at_once(place, script, programs=8)

    assert codes == [0] * 8
    whole = {f"{number:01000}" for number in range(8)}
    versions = [each.content_size_bytes for each in place.versions()]
    assert place.content("a.md") in whole
    assert set(versions) <= {0, 1000}


def test_what_follows_a_file_sees_what_is_appended_here_and_elsewhere(place: Place) -> None:
    place.given("log", "one\n")
    line = ["timeout", str(SECONDS), "tail", "-s", "0.05", "-n", "+1", "-f", "log"]

    with subprocess.Popen(line, cwd=place.dir, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "one\n"
        place.sh("echo two >> log")
        assert tail.stdout.readline() == "two\n"
        place.put("log", "one\ntwo\nthree\n")
        assert tail.stdout.readline() == "three\n"
        tail.terminate()


def test_reading_and_writing_past_the_page_cache_are_as_ever(place: Place) -> None:
    place.given("a.md", "tabs\n" * 1000)

    said = place.sh("dd if=a.md iflag=direct bs=4096 status=none | cksum; cksum < a.md")
    place.sh("dd if=a.md of=b.md oflag=direct bs=5000 status=none")

    assert len(set(said.splitlines())) == 1
    assert place.content("b.md") == "tabs\n" * 1000
    assert place.told() == ["created a.md", "created b.md"]


def test_a_program_that_dies_leaves_what_it_wrote_as_its_closes_would(place: Place) -> None:
    script = (
        "import os; f = open('a.md', 'w', buffering=1); f.write('tabs\\n'); os.kill(os.getpid(), 9)"
    )

    ran = subprocess.run([sys.executable, "-c", script], cwd=place.dir, check=False)

    assert ran.returncode == -9
    eventually(lambda: place.kept() == {"a.md": "tabs\n"})
    assert listing(place.dir) == ["a.md"]
