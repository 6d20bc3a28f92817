"""What a name makes of a file, and which names no memory can have."""

from errno import EILSEQ, EINVAL, ENAMETOOLONG

import pytest
from doors.mount.core.driven import refused
from hypothesis import given

from holdfast.doors.mount.names import Kind, checked, is_backup, kind_of
from holdfast.testing.models import is_path
from holdfast.testing.strategies import nasty_paths, plain_paths

SCRATCH = [
    ".a.md.swp",
    ".a.swo",
    ".a.md.swpx",
    "4913",
    ".#a.md",
    "#a.md#",
    ".a.md.un~",
    ".a.md.kate-swp",
    ".~lock.a.md#",
    ".fuse_hidden0000000100000001",
    ".nfs000000000123",
    ".DS_Store",
    "._a.md",
]
TRANSIENT = [
    "sedAb3dE_",
    "XXAb3dE_",
    "a.md~",
    "a.md.tmp",
    ".tmp",
    "a.tmp.4711",
    "tmpab3d_f0z",
    ".a.md.Ab3dE_",
    "a.md.oAb3dE_",
    ".tmpX",
    ".goutputstream-7JQ2B3",
    "a.md.part",
    "a.md.crdownload",
]
REFUSED = [".git", ".hg", ".svn", ".jj"]
PLAIN = [
    "a.md",
    "sed",
    "sedation",
    "sedAb3dE_x",
    "sedAb3d-_",
    "XXAb3dE",
    "tmpab3d_f0",
    "tmpab3d_f0z1",
    "a.md.oAb3dE",
    "a.md.oAb3d-_",
    "49130",
    "a.swp",
    ".swp",
    ".a.sw",
    "a.md.swp",
    "#a.md",
    "a.md#",
    "a~b",
    "a.tmpx",
    "a.partial",
    ".github",
    ".gitignore",
    "git",
    ".hgignore",
    "nfs1",
    "DS_Store",
    "_a.md",
    ".a.md",
    ".a.md.Ab3dE",
    ".a.md.Ab3d-_",
    "goutputstream-7JQ2B3",
    "a.md.bak",
    "a.orig",
    "~a",
]


@pytest.mark.parametrize("name", SCRATCH)
def test_a_scratch_name(name: str) -> None:
    assert kind_of(name) is Kind.SCRATCH


@pytest.mark.parametrize("name", TRANSIENT)
def test_a_transient_name(name: str) -> None:
    assert kind_of(name) is Kind.TRANSIENT


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name(name: str) -> None:
    assert kind_of(name) is Kind.REFUSED


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name(name: str) -> None:
    assert kind_of(name) is Kind.PLAIN


@pytest.mark.parametrize("name", ["a\n", "4913\n", ".git\n", "sedAb3dE_\n", ".a.swp\n"])
def test_a_pattern_ends_where_the_name_does(name: str) -> None:
    assert kind_of(name) is Kind.PLAIN


@pytest.mark.parametrize(
    "name", ["a.md~", "a.md.bak", "a.orig", "a.md.old", "a.sav", "a.save", "~.bak"]
)
def test_a_backup_name(name: str) -> None:
    assert is_backup(name)


@pytest.mark.parametrize("name", ["a.md", "bak", "a.bakx", "a.saved", "~a", "old", "orig.md"])
def test_no_backup_name(name: str) -> None:
    assert not is_backup(name)


@pytest.mark.parametrize(
    "path",
    [
        "/a.md",
        "/a/b/c",
        "/" + "x" * 255,
        "/" + "\u00e9" * 127,
        "/".join(["", *["x" * 255] * 3, "x" * 255]),
        "/" + "/".join("abcdefghijklmnopqrst"),
        "/ a b ",
        "/\\",
        "/a/.anthropic-memory-store",
        "/\U0001f600.md",
        "/-rf",
    ],
)
def test_a_path_that_is_fine_comes_back(path: str) -> None:
    assert checked(path) == path


@pytest.mark.parametrize("path", ["/\udcff", "/a\udce9.md", "/a\udced\udca0\udc80", "/d\udc80/a"])
def test_a_name_that_is_not_utf8(path: str) -> None:
    with refused(EILSEQ):
        checked(path)


@pytest.mark.parametrize(
    "path",
    [
        "/" + "x" * 256,
        "/" + "\u00e9" * 128,
        "/" + "x" * 256 + "/a",
        "/".join(["", *["x" * 255] * 3, "x" * 254, "y"]),
        "/" + "/".join("abcdefghijklmnopqrstu"),
    ],
)
def test_a_name_that_is_too_long(path: str) -> None:
    with refused(ENAMETOOLONG):
        checked(path)


@pytest.mark.parametrize(
    "path",
    [
        "/a\n",
        "/a\tb",
        "/\x7f",
        "/\x85",
        "/a\u200bb",
        "/\ufeffa",
        "/\u00ad",
        "/a\u2028",
        "/a\u2029",
        "/e\u0301.md",
        "/\u212a",
        "/e\u0301/a",
        "/.anthropic-memory-store",
    ],
)
def test_a_name_that_no_memory_can_have(path: str) -> None:
    with refused(EINVAL):
        checked(path)


@given(plain_paths() | nasty_paths())
def test_a_checked_path_is_one_that_the_store_takes(path: str) -> None:
    short = all(len(each.encode("utf-8", "surrogatepass")) <= 255 for each in path.split("/"))
    if not path.startswith("/") or {"", ".", ".."} & set(path[1:].split("/")):
        return
    if is_path(path) and short:
        assert checked(path) == path
    else:
        with refused():
            checked(path)
