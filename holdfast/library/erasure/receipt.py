"""Receipts of erasures: canonical JSON, link, MAC, signature and their checks.

A receipt holds no name, id, text, path or hash of content. Its link is the sha256 of the link
before it and of the receipt; its MAC is keyed with the workspace's secret.
"""

import hmac
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from holdfast.ground.errors import InvalidInput, MissingExtra
from holdfast.ground.permissions import sync_folder
from holdfast.library.erasure.records import ReceiptCheck, ReceiptJSON, ReceiptLine

TYPE: Final = "erasure_receipt"
VERSION: Final = 1
KEY_VARIABLE: Final = "HOLDFAST_RECEIPT_KEY"
"""Variable with the path of a PEM file with an Ed25519 key, which signs receipts."""

_SEALS: Final = ("link", "mac", "signature")
_MEMBERS: Final = frozenset(
    {
        *("type", "version", "id", "release", "workspace_sha256", "subject", "subject_kind"),
        *("requested_at", "completed_at", "actor", "counts", "verified", "unreached", "pending"),
        *("previous", *_SEALS),
    }
)
_LARGEST: Final = 1_048_576
"""Bytes of a receipt's file."""
_MAC: Final = "hmac-sha256:"
_SIGNATURE: Final = "ed25519:"
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return *value* as JSON with sorted keys and no white space outside strings."""
    return _encode(value)


def subject_text(subject: bytes) -> str:
    """Return the keyed hash *subject* as a receipt has it."""
    return _MAC + subject.hex()


def link_of(receipt: Mapping[str, Any]) -> str:
    """Return the link that *receipt* must have."""
    body = {name: each for name, each in receipt.items() if name not in _SEALS}
    return sha256(str(receipt.get("previous")).encode() + canonical(body)).hexdigest()


def mac_of(secret: bytes, link: str) -> str:
    """Return the MAC of *link* under the workspace's *secret*."""
    return _MAC + hmac.digest(secret, link.encode(), "sha256").hex()


def seal(facts: ReceiptJSON, *, secret: bytes, key: "Any | None") -> ReceiptJSON:
    """Return *facts* with link, MAC and, with an Ed25519 *key*, a signature."""
    link = link_of(facts)
    signed = None if key is None else _SIGNATURE + key.sign(link.encode()).hex()
    return {**facts, "link": link, "mac": mac_of(secret, link), "signature": signed}


def signing_key() -> "Any | None":
    """Return the Ed25519 key that this process's environment names, or None.

    Raises InvalidInput if the file has none, MissingExtra without `cryptography`.
    """
    path = os.environ.get(KEY_VARIABLE, "").strip()
    if not path:
        return None
    return _pem(KEY_VARIABLE, path, public=False)


def _pem(field: str, path: str | Path, *, public: bool) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtra("receipts") from error
    try:
        data = Path(path).read_bytes()
        key: Any = (
            serialization.load_pem_public_key(data)
            if public
            else serialization.load_pem_private_key(data, None)
        )
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(field, "must be a PEM file with a key", given=str(path)) from error
    wanted = ed25519.Ed25519PublicKey if public else ed25519.Ed25519PrivateKey
    if not isinstance(key, wanted):
        raise InvalidInput(field, "must hold an Ed25519 key", given=str(path))
    return key


def read_receipt(path: str | Path) -> bytes:
    """Return the bytes of the receipt's file; InvalidInput if it is no file."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_LARGEST + 1)
    except OSError as error:
        reason = "cannot be read"
        raise InvalidInput("receipt", reason, given=str(path)) from error


def parsed(raw: bytes) -> ReceiptJSON | None:
    """Return the receipt in *raw*, or None if it is not canonical.

    One line feed may follow it.
    """
    body = raw.removesuffix(b"\n")
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
        whole = len(body) <= _LARGEST and canonical(found) == body
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if whole else None


def check_form(receipt: Mapping[str, Any] | None) -> ReceiptLine:
    """Check that *receipt* is a receipt of a version known here."""
    known = (
        receipt is not None
        and frozenset(receipt) == _MEMBERS
        and (receipt["type"], receipt["version"]) == (TYPE, VERSION)
    )
    says = "canonical JSON of a known version" if known else "is no canonical receipt"
    return ReceiptLine(name="form", ok=known, says=says)


def check_link(receipt: Mapping[str, Any]) -> ReceiptLine:
    """Check that the link of *receipt* is that of its content."""
    ok = receipt["link"] == link_of(receipt)
    says = "is that of the content" if ok else "is not that of the content"
    return ReceiptLine(name="link", ok=ok, says=says)


def check_signature(receipt: Mapping[str, Any], public_key: str | Path | None) -> ReceiptLine:
    """Check the signature of *receipt* with the key in the file *public_key*."""
    if public_key is None:
        says = "not checked: no public key" if receipt["signature"] else "none"
        return ReceiptLine(name="signature", ok=None, says=says)
    key = _pem("public_key", public_key, public=True)
    given = receipt["signature"]
    if not isinstance(given, str):
        return ReceiptLine(name="signature", ok=False, says="none")
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(bytes.fromhex(given.removeprefix(_SIGNATURE)), str(receipt["link"]).encode())
    except (InvalidSignature, ValueError):
        return ReceiptLine(name="signature", ok=False, says="is not of this key")
    ok = given == _SIGNATURE + given.removeprefix(_SIGNATURE).lower()
    return ReceiptLine(name="signature", ok=ok, says="is of this key" if ok else "is altered")


def check_alone(raw: bytes, public_key: str | Path | None) -> Iterator[ReceiptLine]:
    """Yield the checks of a receipt's file that need no database."""
    receipt = parsed(raw)
    form = check_form(receipt)
    yield form
    if form.ok and receipt is not None:
        yield check_link(receipt)
        yield check_signature(receipt, public_key)


NOT_HERE: Final = ("mac", "ledger", "chain", "tables", "subject")
"""Checks that need the database."""


def verify_file(raw: bytes, *, public_key: str | Path | None = None) -> ReceiptCheck:
    """Check a receipt's file without its database; `checks` says what was left out."""
    lines = [*check_alone(raw, public_key)]
    lines += [
        ReceiptLine(name=name, ok=None, says="not checked: needs the database") for name in NOT_HERE
    ]
    return checked(lines)


def checked(lines: "list[ReceiptLine]") -> ReceiptCheck:
    """Return the result of *lines*."""
    return ReceiptCheck(ok=all(each.ok is not False for each in lines), checks=tuple(lines))


def write_receipt(path: str | Path, receipt: ReceiptJSON) -> None:
    """Write *receipt* to a new file, mode 0600; InvalidInput if *path* exists."""
    write_private("receipt", path, canonical(receipt))


def check_new_file(path: str | Path) -> None:
    """Raise InvalidInput if *path* exists, or its folder does not."""
    place = Path(path)
    if place.exists() or not place.absolute().parent.is_dir():
        reason = "exists already" if place.exists() else "is in a folder that does not exist"
        raise InvalidInput("file", reason, given=str(path), next="Name a new file.")


def write_private(field: str, path: str | Path, body: bytes) -> None:
    """Write *body* to a new file on disk, mode 0600; InvalidInput if it exists."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        reason = f"cannot be written: {cast('str', error.strerror).lower()}"
        raise InvalidInput(field, reason, given=str(path), next="Name a new file.") from error
    with os.fdopen(handle, "wb") as file:
        file.write(body + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(Path(path).parent)
