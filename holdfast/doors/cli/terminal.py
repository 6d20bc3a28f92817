"""Make stored text safe to show: it must not be able to control the terminal."""

import re

_TEXT = r"[^\x00-\x1f\x7f-\x9f]*"  # up to the next control character, so scanned only once
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, the cursor, modes
    rf"|(?:\x1b\]|\x9d){_TEXT}(?:\x07|\x1b\\|\x9c)"  # titles, links, the clipboard
    rf"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f]){_TEXT}(?:\x1b\\|\x9c)"  # strings to the device
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"[\t\n\u2028\u2029]+")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")


def printable(text: str) -> str:
    """Return *text* without escape sequences, control and direction characters.

    Line feeds and tabs stay, a lone surrogate becomes U+FFFD.
    """
    text = _CONTROLS.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n")))
    return _LONE_SURROGATES.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return *text* as `printable` does, its lines joined by spaces."""
    return _BREAKS.sub(" ", printable(text)).strip()
