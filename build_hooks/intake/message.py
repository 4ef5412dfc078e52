"""What a source says around its diffs: mails, DEP-3 headers, ``git show``, plain prose."""

from __future__ import annotations

import email
import re
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from typing import TYPE_CHECKING

from build_hooks.intake import diff
from build_hooks.intake.model import ForeignPatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What separates the messages of a mailbox; git writes the commit and a fixed date.
_FROM = re.compile(
    rb"^From \S+ +(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} +\d+ \d\d:\d\d:\d\d \d{4}.*$", re.MULTILINE
)
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]+(.*))?")
# Fields that begin the header of a mail, or of a Debian patch (DEP-3).
_SAID = ("subject", "description", "from", "author", "origin", "date", "bug", "forwarded")
# [PATCH 1/2], [RFC PATCH v3], Re: - but not [Bugfix], which is part of a title.
_MARK = re.compile(r"\s*(re:|\[[^\]]*\b(patch|rfc)\b[^\]]*\])\s*", re.IGNORECASE)
_COMMIT = re.compile(r"commit [0-9a-f]{7,40}\b")


@dataclass(frozen=True)
class _Said:
    title: str = ""
    author: str = ""
    text: str = ""


def patches(data: bytes, source: str, fallback: str) -> Iterator[ForeignPatch]:
    """Give each patch of a file: one, or one a message if it is a mailbox.

    Args:
        data: The file.
        source: What it is called in messages.
        fallback: The title of a patch that says none.
    """
    starts = [match.start() for match in _FROM.finditer(data)]
    if not starts or data[: starts[0]].strip():
        yield _patch(data, 1, source, fallback)
        return
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        first = data[:start].count(b"\n") + 1
        yield _patch(data[start:end], first, source, fallback)


def _patch(data: bytes, first: int, source: str, fallback: str) -> ForeignPatch:
    mail = data.partition(b"\n")[2] if _FROM.match(data) else data
    fields, size = _fields(mail)
    body = mail
    if fields:
        body = _decoded(mail, mail[size:])
    first += data[: len(data) - len(mail) + size].count(b"\n")
    read = diff.read(body, first)
    said = _said(fields, read.prose)
    return ForeignPatch(source, said.title or fallback, said.author, said.text, read)


def _fields(data: bytes) -> tuple[dict[str, str], int]:
    """Read the header that a text begins with; tell the fields, and how many bytes they take."""
    fields: dict[str, str] = {}
    size = 0
    name = ""
    for raw in data.splitlines(keepends=True):
        line = raw.decode(errors="replace").rstrip("\r\n")
        match = _FIELD.fullmatch(line)
        if match:
            name = match[1].lower()
            fields.setdefault(name, match[2] or "")
        elif name and line[:1] in (" ", "\t") and line.strip():
            fields[name] += f"\n{line.strip()}"
        else:
            size += len(raw) if not line.strip() else 0
            break
        size += len(raw)
    known = fields.keys() & set(_SAID)
    return (fields, size) if known else ({}, 0)


def _decoded(mail: bytes, body: bytes) -> bytes:
    """Return the text of a mail, decoded if it was coded for the way."""
    message = email.message_from_bytes(mail)
    coding = str(message.get("Content-Transfer-Encoding", "8bit")).strip().lower()
    plain = coding in ("7bit", "8bit", "binary")
    charset = message.get_content_charset("utf-8")
    if plain and not message.is_multipart() and charset in ("utf-8", "us-ascii"):
        return body
    parts = [part for part in message.walk() if part.get_content_maintype() == "text"]
    return b"\n".join(_payload(part) for part in parts)


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    raw = payload if isinstance(payload, bytes) else b""
    try:
        return raw.decode(part.get_content_charset("utf-8")).encode()
    except (LookupError, UnicodeDecodeError):
        return raw


def _said(fields: dict[str, str], prose: Sequence[str]) -> _Said:
    if _COMMIT.match(next((line for line in prose if line.strip()), "")):
        return _shown(prose)
    lines = _without_tail(prose)
    if not fields:
        return _plain(lines)
    author = fields.get("author") or fields.get("from", "")
    subject, _, more = fields.get("subject", "").partition("\n")
    if fields.get("description"):
        subject, _, more = fields["description"].partition("\n")
    elif more:
        # A mail's subject is folded, a Debian patch's goes on as a text.
        subject, more = (subject, more) if "date" not in fields else (f"{subject} {more}", "")
    if lines and (match := re.fullmatch(r"From: (.+)", lines[0])):
        # A mail that somebody else has sent names the author first.
        author, lines = match[1], lines[1:]
    more = "\n".join("" if line == "." else line for line in more.split("\n"))
    if not subject:
        plain = _plain(lines)
        return _Said(plain.title, _header(author), plain.text)
    text = "\n".join([more, "", *lines]).strip()
    return _Said(_title(_header(subject)), _header(author), text)


def _shown(prose: Sequence[str]) -> _Said:
    """Read what `git show` and `git log` write before a diff."""
    author = next((line[7:].strip() for line in prose if line.startswith("Author:")), "")
    message = [line[4:] for line in prose if line.startswith("    ")]
    return _Said(_title(message[0]), author, "\n".join(message[1:]).strip()) if message else _Said()


def _plain(lines: Sequence[str]) -> _Said:
    """Take prose: its first paragraph is the title if it is one line."""
    first, _, rest = "\n".join(lines).strip().partition("\n\n")
    if "\n" in first:
        return _Said(text="\n".join(lines).strip())
    return _Said(_title(first), text=rest.strip())


def _without_tail(prose: Sequence[str]) -> list[str]:
    """Leave out what git and other tools put between a description and a diff."""
    lines: list[str] = []
    for line in prose:
        if line.strip() == "---":
            break
        if not line.startswith(("#", "Index: ", "====", "diff ", "Only in ")):
            lines.append(line.rstrip())
    return lines


def _header(value: str) -> str:
    """Decode a header field: ``=?utf-8?q?...?=``."""
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeDecodeError):
        return value


def _title(text: str) -> str:
    while match := _MARK.match(text):
        text = text[match.end() :]
    return " ".join(text.split())
