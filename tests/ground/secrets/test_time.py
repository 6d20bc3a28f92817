"""Nobody makes the search for secrets slow: its time grows as the text does, whatever repeats."""

from time import process_time

import pytest
from ground.secrets.shapes import token

from holdfast.ground.secrets.normalise import Kind, Shadow, shadows
from holdfast.ground.secrets.scanner import SPANS

SHORT, LONG = 100_000, 400_000
WORSE_THAN_LINEAR = 2.5
"""Times the growth of the text that the time may grow; a square would make it four."""

REPEATS: list[tuple[Kind, str]] = [
    ("armour", "-----BEGIN PRIVATE KEY-----"),
    ("armour", f"-----BEGIN PRIVATE KEY-----{token(24)} "),
    ("armour", "PuTTY-User-Key-File-2:x\n"),
    ("vendor_key", "sk-"),
    ("vendor_key", "ask-"),
    ("vendor_key", "12345678:"),
    ("vendor_key", f"M{token(23)}."),
    ("jwt", "-ey"),
    ("jwt", "eyJ."),
    ("jwt", "ey.ey.ey "),
    ("url_credentials", "://a:"),
    ("url_credentials", "://a:@"),
    ("url_credentials", "://" + "a" * 300),
    ("url_credentials", "?sig="),
    ("header", "authorization: "),
    ("header", "bearer "),
    ("header", "x-a-"),
    ("header", "cookie:"),
    ("header", "cookie: a="),
    ("card", "1"),
    ("card", "4 "),
    ("card", "4111 "),
    ("recovery_phrase", "abandon "),
    ("recovery_phrase", "a "),
    ("one_time_code", "otp "),
    ("one_time_code", "otp 1 "),
    ("one_time_code", "in 2019 otp "),
    ("assignment", "password"),
    ("assignment", "password: "),
    ("assignment", "password='"),
    ("assignment", "password=process.env."),
    ("assignment", "--password "),
    ("assignment", "--a"),
    ("prose", "password is "),
    ("prose", "password for "),
    ("prose", "password for x is "),
    ("prose", "my pin is '"),
    ("entropy", "aB3dE5gH7jK9mN2pQ4rS6tU8vW1xY0 "),
    ("entropy", "aB3dE5gH7jK9mN2pQ4rS6tU8vW1xY0"),
    ("entropy", "aB3/"),
]


def seconds(repeat: str, size: int, kind: Kind) -> float:
    shadow = Shadow((repeat * (size // len(repeat) + 1))[:size], {})
    begun = process_time()
    for _ in SPANS[kind](shadow):
        pass
    return process_time() - begun


def growth(repeat: str, kind: Kind) -> float:
    """Return how many times longer the long text took; a busy machine may disturb one measure."""
    return seconds(repeat, LONG, kind) / max(seconds(repeat, SHORT, kind), 0.005)


@pytest.mark.parametrize(("kind", "repeat"), REPEATS)
def test_what_repeats_is_searched_in_time_that_grows_with_it(kind: Kind, repeat: str) -> None:
    most = WORSE_THAN_LINEAR * LONG / SHORT

    assert any(growth(repeat, kind) < most for _ in range(3))


@pytest.mark.parametrize("point", [0x200B, 0xFDFA, 0x33AF, 0x0430, 0xFF50])
def test_folding_makes_no_text_three_times_longer(point: int) -> None:
    (shadow, *_) = shadows(chr(point) * 10_000)

    assert len(shadow.text) <= 30_000
