"""What waits for itself, by way of others."""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter


def cycles(needs: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Give cycles of *needs* until none is left, each as `a, b, a`: a needs b needs a.

    What is not a key of *needs*, and what needs itself, is passed over.
    """
    left = {
        each: [need for need in dict.fromkeys(wanted) if need in needs and need != each]
        for each, wanted in needs.items()
    }
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            found: list[str] = error.args[1][::-1]
            yield found
            # One need less, and the next search finds what else there is.
            left[found[0]].remove(found[1])
        else:
            return
