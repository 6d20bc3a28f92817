"""A receipt is valid as it was made, and in no other form."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.library.erasure.receipt import (
    KEY_VARIABLE,
    canonical,
    parsed,
    verify_file,
    write_receipt,
)
from holdfast.library.erasure.records import ReceiptJSON
from holdfast.library.holdfast import Holdfast


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """Give the files of a private key and its public key."""
    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


def erased(hf: Holdfast) -> ReceiptJSON:
    hf.durable("agent_7").set("k", "some content", category="core")
    receipt = hf.forget_agent("agent_7").receipt
    assert receipt is not None
    return receipt


def is_refused(hf: Holdfast, raw: bytes) -> bool:
    receipt = parsed(raw)
    if receipt is None or not verify_file(raw).ok:
        return True
    try:
        return not hf.erasures.verify(receipt).ok
    except InvalidInput:
        return True


def test_a_receipt_altered_in_any_byte_is_refused() -> None:
    with holdfast.open(":memory:") as hf:
        raw = canonical(erased(hf))
        assert not is_refused(hf, raw)
        for at, byte in enumerate(raw):
            for other in {byte ^ 1, byte ^ 32, 0x20} - {byte}:
                assert is_refused(hf, raw[:at] + bytes([other]) + raw[at + 1 :]), (at, other)
        for more in (b" ", b"\n\n", b"x"):
            assert is_refused(hf, raw + more)
        assert is_refused(hf, raw[:-1])
        assert not is_refused(hf, raw + b"\n")


def test_without_its_database_a_receipt_says_what_was_not_checked() -> None:
    with holdfast.open(":memory:") as hf:
        raw = canonical(erased(hf))

    check = verify_file(raw)

    assert check.ok
    done = {each.name: each.ok for each in check.checks}
    assert done == {"form": True, "link": True, "signature": None} | dict.fromkeys(
        ("mac", "ledger", "chain", "tables", "subject")
    )


def test_a_signed_receipt_is_verified_with_the_public_key_alone(
    keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = keys
    monkeypatch.setenv(KEY_VARIABLE, str(private))
    with holdfast.open(":memory:") as hf:
        receipt = erased(hf)

    assert verify_file(canonical(receipt), public_key=public).ok
    signature = str(receipt["signature"])
    last = "0" if signature[-1] != "0" else "1"
    for wrong in (None, signature.upper(), signature[:-1] + last, "ed25519:", signature[:-2]):
        altered = receipt | {"signature": wrong}
        assert not verify_file(canonical(altered), public_key=public).ok


def test_a_key_that_is_none_is_refused_before_anything_is_erased(
    keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path in (keys[1], tmp_path / "missing.pem"):
        monkeypatch.setenv(KEY_VARIABLE, str(path))
        with holdfast.open(":memory:") as hf:
            hf.durable("agent_7").set("k", "some content", category="core")
            with pytest.raises(InvalidInput, match=KEY_VARIABLE):
                hf.forget_agent("agent_7")
            assert hf.durable("agent_7").get("k") is not None
            assert list(hf.erasures.list()) == []


def test_a_receipt_is_written_for_its_owner_alone_and_replaces_no_file(tmp_path: Path) -> None:
    place = tmp_path / "r.json"
    with holdfast.open(":memory:") as hf:
        receipt = erased(hf)

    write_receipt(place, receipt)

    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert parsed(place.read_bytes()) == receipt
    with pytest.raises(InvalidInput, match="receipt"):
        write_receipt(place, receipt)
