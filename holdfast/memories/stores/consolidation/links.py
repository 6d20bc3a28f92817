"""Links between the memories of a store: find, resolve and rewrite them.

A link is `[text](target)` or `[[target]]`. A target is a path from the root, or from the directory
of its file; in double brackets also the name of a file, with or without `.md`. Addresses with a
scheme, anchors alone and images are no links.
"""

import re
from collections.abc import Iterable, Mapping
from posixpath import dirname, join, normpath, relpath
from typing import Final

from msgspec import Struct

_LINK: Final = re.compile(
    r"(?<!!)\[[^\]\n]{0,300}\]\(<?(?P<target>[^\s()<>]{1,1024})>?\)"
    r"|(?<!!)\[\[(?P<wiki>[^\]\[|#\n]{1,1024})(?=[\]|#])"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")
_FENCE: Final = re.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)\s*$|\Z)", re.MULTILINE | re.DOTALL)
_ENDING: Final = ".md"


class FileLink(Struct, frozen=True, kw_only=True):
    """A link of a file: where its target stands in the text, and the path it means.

    `path` is None if a name in double brackets is the name of no file.
    """

    start: int
    end: int
    target: str
    path: str | None


class LinkTargets:
    """The paths of a store that links may mean, with the files of each name."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._directories = {above for path in self._paths for above in _above(path)}
        self._named: dict[str, str] = {}
        for path in sorted(self._paths, reverse=True):
            self._named[_name(path)] = path

    def has(self, path: str) -> bool:
        """Check whether there is a file at *path*, or a directory."""
        return path in self._paths or path in self._directories or f"{path}{_ENDING}" in self._paths

    def links(self, text: str, path: str) -> list[FileLink]:
        """Return the links of *text*, the content of the file at *path*.

        Those in fenced blocks of code are none.
        """
        fences = [each.span() for each in _FENCE.finditer(text)]
        found: list[FileLink] = []
        for match in _LINK.finditer(text):
            if any(start <= match.start() < end for start, end in fences):
                continue
            group = "target" if match["target"] is not None else "wiki"
            target = match[group]
            if _SCHEME.match(target):
                continue
            meant = self._wiki(target, path) if group == "wiki" else _resolved(target, path)
            found.append(
                FileLink(start=match.start(group), end=match.end(group), target=target, path=meant)
            )
        return found

    def dead(self, text: str, path: str) -> list[str]:
        """Return the targets of the links of *text* that lead to no file and no directory."""
        return list(
            dict.fromkeys(
                each.target
                for each in self.links(text, path)
                if each.path is None or not self.has(each.path)
            )
        )

    def leads_to(self, text: str, path: str, targets: frozenset[str]) -> bool:
        """Check whether a link of *text* leads to one of *targets*."""
        return any(each.path in targets for each in self.links(text, path))

    def rewritten(
        self, text: str, path: str, moves: Mapping[str, str], *, to: str | None = None
    ) -> str:
        """Return *text* with links that follow *moves*, paths by the paths they had.

        *path* is where its file is, *to* where it moves.
        """
        parts: list[str] = []
        place = 0
        for each in self.links(text, path):
            if each.path is None:
                continue
            goal = moves.get(each.path, each.path)
            spelled = _spelled(each.target, goal, path if to is None else to)
            if goal != each.path or (to is not None and dirname(to) != dirname(path)):
                parts += (text[place : each.start], spelled)
                place = each.end
        return "".join((*parts, text[place:]))

    def _wiki(self, target: str, path: str) -> str | None:
        target = target.strip()
        if "/" in target:
            meant = _resolved(target, path)
            return meant if meant in self._paths else f"{meant.removesuffix(_ENDING)}{_ENDING}"
        beside = join(dirname(path), target)
        for each in (beside, f"{beside}{_ENDING}"):
            if each in self._paths:
                return each
        return self._named.get(target.removesuffix(_ENDING).lower())


def _resolved(target: str, path: str) -> str:
    """Return the path that *target* means in the file at *path*, without its anchor."""
    place = target.partition("#")[0].partition("?")[0]
    return normpath(join(dirname(path), place))


def _spelled(target: str, goal: str, path: str) -> str:
    """Return how *target* is spelled in the file at *path* once it means *goal*."""
    place, anchor, rest = target.partition("#")
    bare = not place.endswith(_ENDING) and goal.endswith(_ENDING)
    if "/" not in place and bare:
        return _name(goal, exact=True)
    if bare:
        goal = goal.removesuffix(_ENDING)
    if not place.startswith("/"):
        goal = relpath(goal, dirname(path))
    return f"{goal}{anchor}{rest}"


def _name(path: str, *, exact: bool = False) -> str:
    name = path.rpartition("/")[2].removesuffix(_ENDING)
    return name if exact else name.lower()


def _above(path: str) -> Iterable[str]:
    while len(path := dirname(path)) > 1:
        yield path
    yield "/"
