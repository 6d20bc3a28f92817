"""Checks of arguments, scopes, file permissions, and lazy packages."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.ground.permissions import create_file, create_folders
from holdfast.ground.scope import Actor
from holdfast.ground.validation import (
    check_bytes,
    check_limit,
    check_one_of,
    check_text,
    check_whole,
    is_list,
    is_number,
    is_whole,
    nested,
    place_of,
)


def refusal(call: Callable[[], object]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("given", [True, 1.0, "1", None, -1, 11])
def test_a_whole_number_is_an_integer_within_its_bounds(given: object) -> None:
    assert not is_whole(given, 0, 10)

    error = refusal(lambda: check_whole("n", given, "must be 0 to 10", most=10, limit=10))

    assert (error.field, error.reason, error.limit) == ("n", "must be 0 to 10", 10)


def test_bounds_belong_to_a_range() -> None:
    assert [check_whole("n", n, most=10) for n in (0, 10)] == [0, 10]
    assert check_whole("n", 2**80) == 2**80
    assert [check_limit(given, most=5, default=3) for given in (None, 1, 5)] == [3, 1, 5]
    assert refusal(lambda: check_limit(6, most=5)).limit == 5


def test_true_is_no_number_and_text_is_no_list() -> None:
    assert [is_number(given) for given in (1, 1.5, True, "1")] == [True, True, False, False]
    given: list[object] = [[1], iter([1]), "a", b"a", {"a": 1}]
    assert [is_list(each) for each in given] == [
        *(True, True),
        *(False, False, False),
    ]


def test_a_wrong_choice_names_the_right_ones() -> None:
    assert check_one_of("mode", "a", ("a", "b")) == "a"

    error = refusal(lambda: check_one_of("mode", "c", ("a", "b"), index=2, next="Choose."))

    assert (error.reason, error.given, error.index) == ("must be one of a, b", "c", 2)
    assert error.next == "Choose."
    assert refusal(lambda: check_one_of("mode", "c", "ab", "must be a or b")).reason == (
        "must be a or b"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "must be a string"),
        ("", "must have 1 to 3 characters, has 0"),
        ("äöüß", "must have 1 to 3 characters, has 4"),
        ("a\0", "must not hold the character U+0000"),
        ("\ud800", "holds a lone surrogate, which is not text"),
    ],
)
def test_text_is_counted_in_code_points(given: object, reason: str) -> None:
    assert check_text("t", "äöü", least=1, most=3) == "äöü"
    assert refusal(lambda: check_text("t", given, least=1, most=3)).reason == reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "must be a string"),
        ("äö", "must have at most 3 bytes, has 4"),
        ("\0", "must not hold the character U+0000"),
    ],
)
def test_bytes_are_counted_in_utf_8(given: object, reason: str) -> None:
    assert check_bytes("t", "aö", most=3) == "aö"
    assert refusal(lambda: check_bytes("t", given, most=3)).reason == reason


def test_an_error_of_a_member_keeps_its_facts() -> None:
    inner = InvalidInput("role", "is wrong", limit=3, given="x", next="Send another.")

    outer = nested(inner, "turns[2]", index=2)

    assert (outer.field, outer.reason, outer.index) == ("turns[2].role", "is wrong", 2)
    assert (outer.limit, outer.given, outer.next) == (3, "x", "Send another.")
    assert nested(inner, index=1).field == "role"


def test_the_place_in_an_error_of_msgspec_is_a_path() -> None:
    with pytest.raises(msgspec.ValidationError) as nested_error:
        msgspec.convert({"a": {"b": "x"}}, dict[str, dict[str, int]])
    with pytest.raises(msgspec.ValidationError) as whole:
        msgspec.convert("x", int)

    assert place_of(nested_error.value) == ("Expected `int`, got `str`", "[...][...]")
    assert place_of(whole.value) == ("Expected `int`, got `str`", "")


ACTORS = [
    Actor.session("sesn_1"),
    Actor.api("apikey_1"),
    Actor.user("user_ada"),
    Actor.service_account("svac_1"),
    Actor.agent("agent_7"),
]


@pytest.mark.parametrize("actor", ACTORS, ids=lambda actor: actor.kind)
def test_an_actor_has_the_type_of_its_wire_form(actor: Actor) -> None:
    wire = actor.to_wire()

    assert actor.type == wire["type"] == f"{actor.kind}_actor"
    assert Actor.from_wire(wire) == actor


@pytest.fixture(params=[0, 0o777], ids=["open", "shut"])
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    before = os.umask(request.param)
    yield tmp_path
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_and_the_folders_above_it_are_for_their_owner(umask: Path) -> None:
    folder = umask / "a" / "b"

    create_folders(folder)
    with create_file(folder / "c.md") as file:
        file.write(b"x")

    assert [mode(folder.parent), mode(folder), mode(folder / "c.md")] == [0o700, 0o700, 0o600]
    assert (folder / "c.md").read_bytes() == b"x"


def test_each_folder_that_is_created_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(os, "fsync", sync)

    create_folders(tmp_path / "a" / "b" / "c")

    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    create_folders(tmp_path)

    assert mode(tmp_path) == 0o755


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(FileExistsError):
        create_folders(tmp_path / "a")


ROOT = Path(holdfast.__path__[0])
STUBS = sorted(ROOT.rglob("__init__.pyi"))
LINE = re.compile(r"from [\w.]+ import (\w+) as \1")


def package(stub: Path) -> str:
    """Return the package whose names *stub* lists."""
    return ".".join(["holdfast", *stub.parent.relative_to(ROOT).parts])


@pytest.mark.parametrize("stub", STUBS, ids=package)
def test_each_name_of_a_stub_can_be_imported(stub: Path) -> None:
    module = import_module(package(stub))
    lines = [line for line in stub.read_text("utf-8").splitlines() if line]

    matches = [LINE.fullmatch(line) for line in lines]

    names = [match[1] for match in matches if match]
    assert len(names) == len(lines) > 0
    assert sorted(names) == module.__all__
    for name in names:
        assert getattr(module, name) is not None


def test_a_star_import_binds_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.testing", raising=False)
    bound: dict[str, object] = {}

    exec("from holdfast.testing import *", bound)

    assert set(bound) - {"__builtins__"} == set(import_module("holdfast.testing").__all__)


def test_another_name_is_an_attribute_error_that_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'memory'"):
        getattr(holdfast, "memory")  # noqa: B009 - the type checker knows that it is not there
