"""How real programs save, and the versions each of their ways makes."""

import shlex
import sys
from pathlib import Path

import pytest
from doors.mount.real.calls import listing
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

TABS = "tabs\nand more\n"
SPACES = "spaces\nand more\n"

# Each makes a file that was not there; a version is told when a program closes what it wrote.
MAKES = {
    "echo": "echo tabs > a",
    "printf": "printf 'tabs\\n' > a",
    "a here-document": "cat > a <<END\ntabs\nEND",
    "a here-string": "cat <<< tabs > a",
    "append": "echo tabs >> a",
    "a group": "{ echo -n ta; echo bs; } > a",
    "a loop": "for part in t a b; do echo -n $part; done > a; echo s >> a",
    "a subshell": "( echo -n ta; echo bs ) > a",
    "noclobber": "set -C; echo tabs > a",
    "cat": "echo tabs | cat > a",
    "cp": "cp {src} a",
    "cp -p": "cp -p {src} a",
    "cp from a pipe": "cat {src} | cp /dev/stdin a",
    "install": "install -m 644 {src} a",
    "tee": "tee a < {src} > /dev/null",
    "tee -a": "tee -a a < {src} > /dev/null",
    "dd": "dd if={src} of=a bs=1 status=none",
    "dd fsync": "dd if={src} of=a bs=2 conv=fsync status=none",
    "mv from elsewhere": "cp {src} {src}.copy; mv {src}.copy a",
    "sort": "sort -o a {src}",
    "sed w": "sed -n 'w a' {src}",
    "awk": "awk '{ print > \"a\" }' {src}",
    "head": "head -c 5 {src} > a",
    "split": "split -b 100 {src} a. ; mv a.aa a",
    "perl": 'perl -e \'open my $f, ">", "a"; print $f "tabs\\n"\'',
    "python": '{python} -c \'open("a", "w").write("tabs\\n")\'',
    "python x": '{python} -c \'open("a", "x").write("tabs\\n")\'',
    "pathlib": '{python} -c \'import pathlib; pathlib.Path("a").write_text("tabs\\n")\'',
    "shutil": '{python} -c \'import shutil; shutil.copyfile("{src}", "a")\'',
    "ed": "printf 'a\\ntabs\\n.\\nw a\\nq\\n' | ed -s",
    "vim": "vim -i NONE -u DEFAULTS -es -c 'set bsk=' -c 'normal! itabs' -c wq a",
    "patch": "printf -- '--- /dev/null\\n+++ a\\n@@ -0,0 +1 @@\\n+tabs\\n' | patch -s",
    "rsync": "rsync -a {src} a",
    "rsync --inplace": "rsync -a --inplace {src} a",
    "tar": "tar c -C {dir} src | tar x; mv src a",
    "curl": "curl -s -o a file://{src}",
    "a descriptor": "exec 5> a; echo -n ta >&5; echo bs >&5; exec 5>&-",
}
TWICE = {"a loop", "split", "tar", "a descriptor"}

# Each changes the `tabs` of a file that is there to `spaces`.
CHANGES = {
    "echo": "printf 'spaces\\nand more\\n' > a",
    "cp": "cp {src} a",
    "cp -f": "cp -f {src} a",
    "tee": "tee a < {src} > /dev/null",
    "dd": "dd if={src} of=a status=none",
    "dd notrunc": "dd if={src} of=a conv=notrunc status=none",
    "sort": "sort -r {src} -o a",
    "sed -i": "sed -i s/tabs/spaces/ a",
    "sed -i -s": "sed -i -s s/tabs/spaces/ a",
    "perl -i": "perl -pi -e s/tabs/spaces/ a",
    "ed": "printf '1s/tabs/spaces/\\nw\\nq\\n' | ed -s a",
    "vim": "vim -i NONE -u DEFAULTS -es -c 'set bsk=' -c %s/tabs/spaces/ -c wq a",
    "vim, no backup": "{vim} -es -c 'set bsk= nowb' -c %s/tabs/spaces/ -c wq a",
    "vim, backup by copy": "{vim} -es -c 'set bsk= bkc=yes' -c %s/tabs/spaces/ -c wq a",
    "vim, backup by rename": "{vim} -es -c 'set bsk= bkc=no' -c %s/tabs/spaces/ -c wq a",
    "vim, undo file": "{vim} -es -c 'set bsk= udf' -c %s/tabs/spaces/ -c wq a",
    "vim, no swap": "{vim} -n -es -c 'set bsk=' -c %s/tabs/spaces/ -c wq a",
    "patch": "printf -- '--- a\\n+++ a\\n@@ -1 +1 @@\\n-tabs\\n+spaces\\n' | patch -s a",
    "rsync": "rsync -a {src} a",
    "rsync --inplace": "rsync -a --inplace {src} a",
    "python": '{python} -c \'open("a", "w").write("spaces\\nand more\\n")\'',
    "a temporary file and a rename": "{python} {dir}/replace.py a {src}",
    "a file of its own and a rename": "cp {src} a.tmp; mv a.tmp a",
    "mktemp and mv": "t=$(mktemp -p . tmp.XXXXXXXX.tmp); cp {src} $t; mv $t a",
    "fileinput": "{python} {dir}/inplace.py a",
    "a backup that is removed": "mv a a.bak; sed s/tabs/spaces/ a.bak > a; rm a.bak",
    "a descriptor for both": "exec 5<> a; read -u5 x; exec 5> a; cat {src} >&5; exec 5>&-",
    "shutil": '{python} -c \'import shutil; shutil.copy("{src}", "a")\'',
}

REPLACE = """
import os, sys, tempfile
target, source = sys.argv[1:]
with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as f:
    f.write(open(source).read())
    f.flush()
    os.fsync(f.fileno())
os.replace(f.name, target)
"""
INPLACE = """
import fileinput, sys
for line in fileinput.input(sys.argv[1], inplace=True):
    print(line.replace("tabs", "spaces"), end="")
"""


def made(place: Place, script: str, dir: Path, source: str) -> None:
    """Run *script* with a source file outside of the mount."""
    (dir / "src").write_text(source)
    (dir / "replace.py").write_text(REPLACE)
    (dir / "inplace.py").write_text(INPLACE)
    meant = {
        "{src}": str(dir / "src"),
        "{dir}": str(dir),
        "{python}": shlex.quote(sys.executable),
        "{vim}": "vim -i NONE -u NONE",
    }
    for word, meaning in meant.items():
        script = script.replace(word, meaning)
    place.sh(script)


@pytest.mark.parametrize("way", MAKES)
def test_a_new_file_is_one_version(place: Place, tmp_path: Path, way: str) -> None:
    made(place, MAKES[way], tmp_path, "tabs\n")

    assert place.kept() == {"a": "tabs\n"}
    assert listing(place.dir) == ["a"]
    assert len(place.told()) == (2 if way in TWICE else 1)
    assert place.spooled() == []


@pytest.mark.parametrize("way", CHANGES)
def test_a_changed_file_is_one_version_of_the_same_memory(
    place: Place, tmp_path: Path, way: str
) -> None:
    place.given("a", TABS)
    memory = place.id("a")

    made(place, CHANGES[way], tmp_path, SPACES)

    assert place.content("a") in {SPACES, "spaces\n", "and more\nspaces\n", "spaces\nand more\n"}
    assert "spaces" in (place.dir / "a").read_text()
    assert place.told() == ["created a", "modified a"]
    assert place.id("a") == memory
    left = {each for each in listing(place.dir) if not each.endswith(".un~")}
    assert left == {"a"}
    assert place.spooled() == []


BACKUPS = {
    "cp --backup": ("cp --backup=simple {src} a", "a~"),
    "cp --backup --suffix": ("cp --backup=simple --suffix=.orig {src} a", "a.orig"),
    "mv --backup": ("cp {src} a.tmp; mv --backup=simple a.tmp a", "a~"),
    "install --backup": ("install -m 644 --backup=simple {src} a", "a~"),
    "sed -i.bak": ("sed -i.bak s/tabs/spaces/ a", "a.bak"),
    "perl -i.bak": ("perl -pi.bak -e s/tabs/spaces/ a", "a.bak"),
    "perl -i~": ("perl -pi~ -e s/tabs/spaces/ a", "a~"),
    "patch -b": (
        "printf -- '--- a\\n+++ a\\n@@ -1 +1 @@\\n-tabs\\n+spaces\\n' | patch -s -b a",
        "a.orig",
    ),
    "rsync -b": ("rsync -ab {src} a", "a~"),
    "vim, backup": (
        "{vim} -es -c 'set bsk= bk' -c %s/tabs/spaces/ -c wq a",
        "a~",
    ),
    "vim, backup by copy": (
        "{vim} -es -c 'set bsk= bk bkc=yes' -c %s/tabs/spaces/ -c wq a",
        "a~",
    ),
    "mv, then written again": ("mv a a.bak; cat {src} > a", "a.bak"),
    "mv, then made from it": ("mv a a.old; sed s/tabs/spaces/ a.old > a", "a.old"),
    "mv, then a rename": ("mv a a.sav; cp {src} a.tmp; mv a.tmp a", "a.sav"),
}


@pytest.mark.parametrize("way", BACKUPS)
def test_a_backup_never_takes_the_memory_away(place: Place, tmp_path: Path, way: str) -> None:
    script, backup = BACKUPS[way]
    place.given("a", TABS)
    memory = place.id("a")

    made(place, script, tmp_path, SPACES)

    assert place.content("a") == SPACES
    assert place.id("a") == memory
    assert place.told() == ["created a", "modified a"]
    assert (place.dir / backup).read_text() == TABS


def test_a_backup_is_a_memory_of_its_own_when_the_grace_is_over(
    start: Start, kept: Kept, tmp_path: Path
) -> None:
    with start(Target(kept.db, (kept.store(),)), "--grace=3") as mount:
        places = {way: Place(mount, kept.hf, f"t{number}") for number, way in enumerate(BACKUPS)}
        for way, place in places.items():
            place.given("a", TABS)
            made(place, BACKUPS[way][0], tmp_path, SPACES)
        wanted = {way: {"a": SPACES, BACKUPS[way][1]: TABS} for way in BACKUPS}

        eventually(lambda: {way: place.kept() for way, place in places.items()} == wanted)
        for place in places.values():
            assert place.told()[:2] == ["created a", "modified a"]
            assert len(place.told()) == 3


def test_a_copy_that_is_named_like_a_backup_is_a_memory_of_its_own(place: Place) -> None:
    place.given("a", TABS)

    place.sh("cp a a.bak; sed -i s/tabs/spaces/ a")

    assert place.kept() == {"a": SPACES, "a.bak": TABS}
    assert place.told() == ["created a", "created a.bak", "modified a"]


def test_each_program_that_writes_into_one_redirection_makes_its_own(place: Place) -> None:
    place.sh("{ /bin/echo one; /bin/echo two; /bin/echo three; } > a")

    assert place.content("a") == "one\ntwo\nthree\n"
    assert place.told() == ["created a", "modified a", "modified a"]


def test_a_loop_that_appends_makes_one_each_time(place: Place) -> None:
    place.sh("for i in 1 2 3 4 5; do echo $i >> a; done")

    assert place.content("a") == "1\n2\n3\n4\n5\n"
    assert place.told() == ["created a", *(["modified a"] * 4)]


def test_emptying_and_cutting_make_one_each(place: Place) -> None:
    place.given("a", TABS)

    for line, wanted in (
        ("truncate -s 4 a", {"a": "tabs"}),
        (": > b", {"a": "tabs", "b": ""}),
        ("truncate -s 0 a", {"a": "", "b": ""}),
    ):
        place.sh(line)
        eventually(lambda wanted=wanted: place.kept() == wanted)

    assert place.told() == ["created a", "modified a", "created b", "modified a"]


def test_touch_makes_a_file_and_changes_none(place: Place) -> None:
    place.given("a", TABS)

    place.sh("touch a b; touch b; cp -p a c; touch -r b c")

    assert place.kept() == {"a": TABS, "b": "", "c": TABS}
    assert sorted(place.told()) == ["created a", "created b", "created c"]


def test_moves_are_versions_of_what_moves(place: Place) -> None:
    place.given("a", TABS)
    memory = place.id("a")

    place.sh("mv a b; mkdir d; mv b d/; mv d e; mv -n e/b e/c; mv -T e f")

    assert place.kept() == {"f/c": TABS}
    assert place.id("f/c") == memory
    paths = ["b", "d/b", "e/b", "e/c", "f/c"]
    assert place.told() == ["created a", *(f"modified {path}" for path in paths)]


def test_a_move_over_a_file_is_one_version_and_one_deletion(place: Place) -> None:
    place.sh("echo one > a; echo two > b; mv a b")

    assert place.kept() == {"b": "one\n"}
    assert sorted(place.told()[2:]) == ["deleted a", "modified b"]


def test_rsync_of_a_tree_is_one_version_a_file_and_none_when_repeated(
    place: Place, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    for name in ("a.md", "d/b.md", "d/e/c.md", ".hidden.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)

    place.sh(f"rsync -a {tree}/ . ; rsync -a --checksum {tree}/ .")
    (tree / "d/b.md").write_text("changed")
    (tree / "a.md").unlink()
    place.sh(f"rsync -a --checksum --delete {tree}/ .")

    assert place.kept() == {"d/b.md": "changed", "d/e/c.md": "d/e/c.md", ".hidden.md": ".hidden.md"}
    assert sorted(place.told()[4:]) == ["deleted a.md", "modified d/b.md"]
    assert len(place.told()) == 6


def test_tar_unpacks_one_version_a_file_and_packs_what_is_there(
    place: Place, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    for name in ("a.md", "d/b.md", "d/e/c.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)

    place.sh(f"tar c -C {tree} . | tar x; tar c . | tar t | sort > {tmp_path}/list")

    assert sorted(place.told()) == ["created a.md", "created d/b.md", "created d/e/c.md"]
    listed = (tmp_path / "list").read_text().split()
    assert listed == sorted(["./", "./a.md", "./d/", "./d/b.md", "./d/e/", "./d/e/c.md"])


def test_git_is_refused_before_it_begins(place: Place) -> None:
    said = place.refuses("git init .")

    assert "not permitted" in said
    assert listing(place.dir) == []


def test_a_program_that_is_refused_says_why_and_the_file_stays(place: Place) -> None:
    place.given("a", TABS)

    assert "Invalid or incomplete multibyte" in place.refuses(
        "printf '\\xff' | dd of=a status=none"
    )
    assert "File too large" in place.refuses("head -c 102401 /dev/zero | tr '\\0' x | cat > a")
    assert "Invalid or incomplete multibyte" in place.refuses("cp /bin/true b")
    assert "File name too long" in place.refuses(f"cp a {'x' * 256}")
    assert "Invalid argument" in place.refuses("cp a $'a\\nb'")

    assert place.kept() == {"a": TABS}
    assert listing(place.dir) == ["a"]


def test_what_reads_a_tree_reads_it_whole(place: Place, tmp_path: Path) -> None:
    for number in range(60):
        # Changes come in order: once the mount shows the last one, it shows all.
        write = place.put if number < 59 else place.placed
        write(f"d{number % 4}/{number}.md", f"line {number}\n" * (number + 1))

    place.sh(f"cp -r . {tmp_path}/copy; diff -r . {tmp_path}/copy")
    counted = place.sh("find . -name '*.md' | wc -l; cat d*/*.md | wc -l; du -ab . > /dev/null")

    assert counted.split() == ["60", str(sum(range(1, 61)))]
    assert len(place.told()) == 60
