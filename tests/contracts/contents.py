"""What a memory's content may be, and that it comes back byte for byte."""

from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, sha256_of, written
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store

GOOD = {
    "nothing": "",
    "spaces": "  \n\n ",
    "all kinds of newlines": "a\nb\r\nc\rd\x85e\u2028f",
    "a byte order mark": "\ufeffa",
    "U+0000": "\x00a\x00\x00b\x00",
    "controls": "".join(map(chr, range(32))),
    "not in normal form C": "e\u0301 \u212a",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "four bytes each": "\U0001f600" * 25_600,
    "102,400 bytes": "x" * 102_400,
    "what JSON and SQL would escape": "\"'\\%_;--/*\u2028</script>",
}


class ContentsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
    def test_content_comes_back_byte_for_byte(
        self, hf: Holdfast, store: Store, content: str
    ) -> None:
        (memory,) = written(hf, store, "/a", content=content)

        kept = hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)

        assert kept.content == content
        assert kept.content_sha256 == sha256_of(content)
        assert kept.content_size_bytes == len(content.encode())

    @pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
    def test_a_version_keeps_it_byte_for_byte(
        self, hf: Holdfast, store: Store, content: str
    ) -> None:
        (memory,) = written(hf, store, "/a", content=content)

        version = hf.memory_stores.memory_versions.retrieve(
            memory.memory_version_id, memory_store_id=store.id, view="full"
        )

        assert version.content == content
        assert version.content_sha256 == sha256_of(content)
        assert version.content_size_bytes == len(content.encode())

    @pytest.mark.parametrize(
        "content",
        ["x" * 102_401, "\u00fc" * 51_201, "a\ud800b", 7, b"bytes", ["x"]],
        ids=["102,401 bytes", "102,402 bytes of two each", "a surrogate", "int", "bytes", "list"],
    )
    def test_bad_content_is_refused(self, hf: Holdfast, store: Store, content: Any) -> None:
        (memory,) = written(hf, store, "/a")

        with invalid("content"):
            hf.memory_stores.memories.create(store.id, path="/b", content=content)
        with invalid("content"):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content=content)

        assert len(hf.memory_stores.memory_versions.list(store.id)) == 1

    def test_a_refusal_never_repeats_the_content(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(InvalidInput) as refusal:
            hf.memory_stores.memories.create(store.id, path="/a", content="private " * 20_000)

        assert "private" not in str(refusal.value)
        assert refusal.value.limit == 102_400
