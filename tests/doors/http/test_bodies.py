import pytest
from doors.http.asking import Asker
from msgspec import UNSET, UnsetType

from holdfast.doors.http.bodies import DEPTH, Body, read_body, read_json
from holdfast.ground.errors import InvalidInput


class Sample(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    count: int | UnsetType = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (b"", "body", "is not JSON, it is empty"),
        (b"   ", "body", "is not JSON, it is empty"),
        (b"nope", "body", "is not JSON at line 1, column 1"),
        (b'{"path":\n"a",}', "body", "is not JSON at line 2, column 5"),
        (b"{} {}", "body", "is not JSON at line 1, column 4"),
        (b"[]", "body", "must be a JSON object"),
        (b'"text"', "body", "must be a JSON object"),
        (b"null", "body", "must be a JSON object"),
        (b"7", "body", "must be a JSON object"),
        (b'{"path":"\xff"}', "body", "is not UTF-8"),
        (b"\xef\xbb\xbf{}", "body", "is not JSON at line 1, column 1"),
        (b'{"path":"a","path":"b"}', "path", "is given twice"),
        (b'{"path":"a","p\\u0061th":"b"}', "path", "is given twice"),
        (b'{"path":"a","metadata":{"k":"1","k":"2"}}', "k", "is given twice"),
        (b"{}", "path", "is required"),
        (b'{"path":"a","other":1}', "other", "is not a key here"),
        (b'{"path":1}', "path", "must be a string, is an integer"),
        (b'{"path":null}', "path", "must be a string, is null"),
        (b'{"path":["a"]}', "path", "must be a string, is a list"),
        (b'{"path":"a","count":1.0}', "count", "must be an integer, is a number"),
        (b'{"path":"a","count":true}', "count", "must be an integer, is true or false"),
        (b'{"path":"a","count":"1"}', "count", "must be an integer, is a string"),
        (
            b'{"path":"a","metadata":{"k":1}}',
            "metadata",
            "each value must be a string or null, is an integer",
        ),
        (b'{"path":"a","metadata":[]}', "metadata", "must be an object or null, is a list"),
        (b'{"path":"\\ud800"}', "path", "holds a lone surrogate, which is not text"),
        (b'{"path":"a","\\udfff":1}', "\\udfff", "holds a lone surrogate, which is not text"),
        (b'{"path":NaN}', "body", "holds what JSON does not have"),
        (b'{"path":-Infinity}', "body", "holds what JSON does not have"),
        (b'{"path":1e999}', "body", "holds a number out of range"),
        (b'{"path":' + b"9" * 30 + b"}", "body", "holds an integer of more than 64 bits"),
        (b'{"path":' + b"9" * 9_000 + b"}", "body", "holds an integer of more than 64 bits"),
        (b'{"path":9223372036854775808}', "body", "holds an integer of more than 64 bits"),
    ],
)
def test_what_is_wrong_is_named(raw: bytes, field: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_body(raw, Sample)

    assert (refused.value.field, refused.value.reason) == (field, reason)


@pytest.mark.parametrize("levels", [DEPTH + 1, 500, 100_000])
def test_deep_nesting_is_refused_at_any_depth(levels: int) -> None:
    with pytest.raises(InvalidInput, match="levels deep"):
        read_json(b'{"tools":' + b"[" * levels + b"]" * levels + b"}")


def test_nesting_that_somebody_may_need_is_read() -> None:
    nested = read_json(b'{"tools":' + b"[" * 30 + b"]" * 30 + b"}")

    assert list(nested) == ["tools"]


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert read_body(b'{"path":"\\ud83d\\ude00"}', Sample).path == "\N{GRINNING FACE}"


def test_what_is_left_out_is_unset_and_null_is_none() -> None:
    left_out, null = (
        read_body(b'{"path":"a"}', Sample),
        read_body(b'{"path":"a","metadata":null}', Sample),
    )

    assert (left_out.metadata, null.metadata) == (UNSET, None)


def test_a_body_is_read_whatever_its_content_type_says(ask: Asker) -> None:
    said = ask("POST", "/v1/memory_stores", {"name": "n"}, headers={"content-type": "text/plain"})

    assert said.json()["name"] == "n"


def test_a_call_without_a_body_never_reads_one(ask: Asker, store: str) -> None:
    said = ask("POST", f"/v1/memory_stores/{store}/archive", b"{not json")

    assert said.json()["archived_at"] is not None


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_body_over_its_limit_is_refused_before_anything_else(ask: Asker, chunks: int) -> None:
    huge = b" " * (1_048_576 + 1)

    said = ask("POST", "/v1/memory_stores", huge, headers={"x-api-key": "hfs_bad"}, chunks=chunks)

    assert (said.status, said.error["type"]) == (413, "request_too_large")
    assert said.facts["facts"] == {"limit": 1_048_576}


def test_a_body_at_its_limit_is_read(ask: Asker) -> None:
    body = b'{"name":"n"}'.ljust(1_048_576)

    assert ask("POST", "/v1/memory_stores", body, chunks=5).status == 200


def test_an_empty_token_body_is_as_good_as_none(ask: Asker) -> None:
    session = ask.post("/v1/sessions", {"agent": "a", "environment_id": "e"}).json()["id"]

    said = ask("POST", f"/api/sessions/{session}/tokens")

    assert said.json()["expires_at"] is None
