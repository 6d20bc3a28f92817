"""All that is derived, made again from what it comes from."""

from holdfast.engines.base import Engine, Transaction
from holdfast.library.upkeep.verify_longterm import mend_longterm
from holdfast.library.upkeep.words import fill_words_of


def rebuild(engine: Engine) -> None:
    """Make the words of memories, and the terms and vectors of long-term memory, fit again.

    That is one transaction; *engine* is scoped to everybody.
    """
    mends = (mend_longterm(engine), fill_words_of(engine))

    def work(tx: Transaction) -> None:
        for mend in mends:
            mend(tx)

    engine.write(work, timeout=3600)
