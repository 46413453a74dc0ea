"""A question as people ask it → the question as the parser learned to read it, with M0, M1 … for names.

    Did Ridley Scott direct Alien?      →      Did M0 direct M1          M0 Ridley Scott, M1 Alien

In CFQ, which name is M0 and which is M1 depends on the question's pattern, which is not known before it is parsed. So
there are a few numberings, and the one that the parser is surest of is taken.

A thing may also be named by its IRI, in < and >: Who played <http://example.org/films/character-morgan>?
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from lagr.ask.names import Mention, Names, words_of
from lagr.ask.query import is_iri, is_placeholder
from lagr.errors import DataError

ENDINGS = "?.!"
LONGEST = 10_000  # characters
_IN_BRACKETS = re.compile(r"<([^<>\s]+)>")


@dataclass(frozen=True)
class Wording:
    """The tokens that are parsed, and the name that each placeholder in them stands for."""

    tokens: tuple[str, ...]
    mentions: dict[str, Mention]


@dataclass(frozen=True)
class Other:
    """Another thing of the same name, and the question about that one."""

    iri: str
    question: str


@dataclass(frozen=True)
class Question:
    text: str
    wordings: tuple[Wording, ...]  # one for every numbering of the names
    notes: tuple[str, ...]  # what the one who asks should know
    others: dict[str, tuple[Other, ...]]  # the IRI that was taken for a name of several things → the others


def understand(text: str, names: Names, words: Container[str]) -> Question:
    """The question with placeholders for names. words: those the parser knows.

    DataError where it has a name that is in no table.
    """
    if len(text) > LONGEST:
        raise DataError(f"the question has {len(text):,} characters; at most {LONGEST:,} are read")
    tokens = _tokens(text)
    while tokens and tokens[-1] in ENDINGS and tokens[-1] not in words:
        tokens.pop()
    if not tokens:
        raise DataError("the question is empty; give at least one word")
    tokens = [_as_known(token, position, words) for position, token in enumerate(tokens)]
    written = [
        Mention(position, position + 1, names.name_of(token[1:-1]) or token[1:-1], token[1:-1])
        for position, token in enumerate(tokens)
        if _IN_BRACKETS.fullmatch(token)
    ]
    found = names.find(tokens, lambda token: token in words)
    mentions = sorted([*written, *found], key=lambda mention: mention.start)
    notes = [
        f"“{mention.name}” could be <{'> or <'.join((mention.iri, *mention.others))}>; the first was taken; "
        "write another in its place to ask about that"
        for mention in mentions
        if mention.others
    ]
    notes += _check_unknown(tokens, mentions, names, words)
    others = {mention.iri: tuple(_others(tokens, mentions, mention)) for mention in mentions if mention.others}
    return Question(text, tuple(_wordings(tokens, mentions, words)), tuple(dict.fromkeys(notes)), others)


def _tokens(text: str) -> list[str]:
    """The tokens of a question; an IRI in < and > is one."""
    tokens: list[str] = []
    end = 0
    for found in _IN_BRACKETS.finditer(text):
        if is_iri(found[1]):
            tokens += [*words_of(text[end : found.start()]), found[0]]
            end = found.end()
    return [*tokens, *words_of(text[end:])]


def _others(tokens: Sequence[str], mentions: Sequence[Mention], taken: Mention) -> Iterator[Other]:
    """The question with another thing of that name in every place of the one that was taken."""
    same = [mention for mention in mentions if mention.iri == taken.iri]
    for iri in taken.others:
        yield Other(iri, " ".join(_replaced(tokens, same, {taken.iri: f"<{iri}>"})))


def _as_known(token: str, position: int, words: Container[str]) -> str:
    """The token in the spelling the parser knows: `did` at the beginning is `Did`, and CFQ says `a actor`."""
    if position == 0 and token.capitalize() in words:
        return token.capitalize()
    return "a" if token == "an" and "an" not in words else token


def _check_unknown(
    tokens: Sequence[str], mentions: Sequence[Mention], names: Names, words: Container[str]
) -> Iterator[str]:
    """A note for every word that is unknown; DataError where it looks like a name."""
    named = {position for mention in mentions for position in range(mention.start, mention.end)}
    unknown = [position for position, token in enumerate(tokens) if position not in named and token not in words]
    spans: list[list[int]] = []
    for position in unknown:
        if spans and spans[-1][-1] == position - 1:
            spans[-1].append(position)
        else:
            spans.append([position])
    for span in spans:
        text = " ".join(tokens[position] for position in span)
        near = names.nearest(text)
        if near or any(not tokens[position].islower() for position in span):
            hint = f"; did you mean “{near}”?" if near else "; add it to the table, or say it in other words"
            raise DataError(f"“{text}” is no name in {names.where}, and no word that the parser knows{hint}")
        yield f"the parser doesn't know “{text}”; the answer may be to another question"
    for position, token in enumerate(tokens):
        if is_placeholder(token) and position not in named:
            raise DataError(f"{token} stands for nothing; write the name of a thing in {names.where}")


def _wordings(tokens: Sequence[str], mentions: Sequence[Mention], words: Container[str]) -> Iterator[Wording]:
    iris = list(dict.fromkeys(mention.iri for mention in mentions))
    at_all = False
    for numbers in _numberings(len(iris)):
        placeholder = {iri: f"M{number}" for iri, number in zip(iris, numbers, strict=True)}
        if all(name in words for name in placeholder.values()):
            at_all = True
            yield Wording(
                tuple(_replaced(tokens, mentions, placeholder)),
                {placeholder[mention.iri]: mention for mention in reversed(mentions)},
            )
    if not at_all:
        raise DataError(f"the question names {len(iris)} things, and the parser knows no M{len(iris) - 1}")


def _numberings(count: int) -> Iterator[tuple[int, ...]]:
    """The usual ones of CFQ: from M0 on, from M1 on, and from M1 on with M0 last."""
    rest = tuple(range(1, count))
    yield from dict.fromkeys([tuple(range(count)), tuple(range(1, count + 1)), (*rest, 0)[:count]])


def _replaced(tokens: Sequence[str], mentions: Sequence[Mention], placeholder: dict[str, str]) -> Iterator[str]:
    starts = {mention.start: mention for mention in mentions}
    position = 0
    while position < len(tokens):
        mention = starts.get(position)
        yield placeholder[mention.iri] if mention else tokens[position]
        position = mention.end if mention else position + 1
