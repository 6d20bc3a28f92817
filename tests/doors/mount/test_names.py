"""Names that no directory shows, and names that come in masses."""

from errno import ENAMETOOLONG

import pytest

from holdfast.doors.mount.names import checked, is_shown


@pytest.mark.parametrize(
    "path", ["/a.md", "/" + "x" * 255, "/" + "\u00e9" * 127, "/" + "/".join(["x" * 200] * 5)]
)
def test_a_path_of_short_components_is_shown(path: str) -> None:
    assert is_shown(path)


@pytest.mark.parametrize("path", ["/" + "x" * 256, "/a/" + "\u00e9" * 128, "/" + "x" * 300 + "/a"])
def test_a_path_with_a_long_component_is_hidden(path: str) -> None:
    assert not is_shown(path)


def test_a_path_is_measured_in_bytes() -> None:
    fits = "/".join(["", *["\u00e9" * 100] * 5])

    assert checked(fits) == fits
    with pytest.raises(OSError, match="too long") as raised:
        checked(fits + "/" + "\u00e9" * 10)
    assert raised.value.errno == ENAMETOOLONG
