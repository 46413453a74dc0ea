"""*mini*: a small English grammar that generates sentences, their aligned graphs and COGS-style forms.

It needs no download and gives the same sentences for the same seed. As in COGS, training leaves gaps that a parser
should fill: some words are seen in one position or voice only (lexical categories), prepositional phrases only on
objects, and nesting only to a small depth (structural ones). `gen` has a category for each gap.

    A walrus under the table was painted by Ida .
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from lagr.datasets import Example, Source
from lagr.errors import DataError
from lagr.forms import cogs
from lagr.graph import Edge, Graph

NOUNS = (
    "walrus carpenter lantern pancake violin captain turnip robot sailor kite teapot painter beetle canoe librarian "
    "mango drummer pigeon sculptor balloon gardener puppet wizard lobster tailor candle plumber"
).split()
PLACES = "table barrel shed carpet ladder bridge crate tent shelf boat".split()
NAMES = "Ida Oskar Mina Tomas Greta Yusuf Nadia Felix Priya Hugo Zoe Ravi".split()
PREPOSITIONS = "in on under".split()


def _verbs(*forms: str) -> list[list[str]]:
    """Lemma, past and, where it is used, participle of each verb."""
    return [verb.split() for verb in forms]


TRANSITIVE = _verbs(
    "paint painted painted", "follow followed followed", "hide hid hidden", "lift lifted lifted",
    "forget forgot forgotten", "wash washed washed", "break broke broken", "visit visited visited",
)  # fmt: skip
AGENT_ONLY = _verbs("whistle whistled", "yawn yawned", "sing sang", "march marched", "bow bowed")
THEME_ONLY = _verbs("vanish vanished", "sink sank", "wobble wobbled", "shatter shattered")
GIVING = _verbs("hand handed", "throw threw", "sell sold", "mail mailed")
SAYING = _verbs("claim claimed", "doubt doubted", "dream dreamed", "notice noticed")
WANTING = _verbs("want wanted", "refuse refused", "plan planned")

# What training holds back: these words are seen there in one position, voice or construction only.
ONLY_SUBJECT, ONLY_OBJECT, ONLY_SUBJECT_NAME = "walrus", "turnip", "Ida"
ONLY_ACTIVE, ONLY_PASSIVE, ONLY_TO_DATIVE = "wash", "lift", "mail"  # past and participle are one word
TRAINING_DEPTH, DEEPEST = 2, 5
NESTED = {"clauses": "nested clauses", "pps": "chained prepositional phrases"}

CATEGORIES = (
    "subject_to_object", "object_to_subject", "name_subject_to_object", "active_to_passive", "passive_to_active",
    "to_dative_to_double_object", "pp_on_subject", "deeper_pp", "deeper_clause",
)  # fmt: skip


@dataclass
class Sentence:
    """Words, nodes and edges, written from left to right; an edge may name a node that comes later."""

    words: list[str] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)  # slot → label; L = 1, so a slot is a position
    edges: list[tuple[int, str, int]] = field(default_factory=list)

    def say(self, word: str, label: str | None = None) -> int:
        if label is not None:
            self.labels[len(self.words)] = label
        self.words.append(word)
        return len(self.words) - 1

    def link(self, source: int, label: str, target: int) -> None:
        self.edges.append((source, label, target))

    def finish(self, category: str) -> Example:
        self.say(".")
        words = (self.words[0][0].upper() + self.words[0][1:], *self.words[1:])
        slots = sorted(self.labels)
        node = {slot: j for j, slot in enumerate(slots)}
        edges = tuple(Edge(node[s], label, node[t]) for s, label, t in sorted(self.edges))
        graph = Graph(tuple(self.labels[slot] for slot in slots), edges, tuple(slots))
        return Example(words, graph, cogs.write(graph), category)


class Grammar:
    """Random sentences; `focus` is the gap of a gen category, or "" for what training may show."""

    def __init__(self, rng: random.Random, focus: str = "") -> None:
        self.rng, self.focus = rng, focus

    def sentence(self) -> Example:
        out = Sentence()
        build: dict[str, Callable[[Sentence], object]] = {
            "subject_to_object": lambda s: self.transitive(s, theme=ONLY_SUBJECT),
            "object_to_subject": lambda s: self.transitive(s, agent=ONLY_OBJECT),
            "name_subject_to_object": lambda s: self.transitive(s, theme=ONLY_SUBJECT_NAME),
            "active_to_passive": lambda s: self.passive(s, verb=ONLY_ACTIVE),
            "passive_to_active": lambda s: self.transitive(s, verb=ONLY_PASSIVE),
            "to_dative_to_double_object": lambda s: self.giving(s, verb=ONLY_TO_DATIVE, to=False),
            "pp_on_subject": lambda s: self.transitive(s, subject_pps=1),
            "deeper_pp": lambda s: self.transitive(s, object_pps=self.rng.randint(TRAINING_DEPTH + 1, DEEPEST)),
            "deeper_clause": lambda s: self.clause(s, nesting=self.rng.randint(TRAINING_DEPTH + 1, DEEPEST)),
        }
        if self.focus:
            build[self.focus](out)
        else:
            self.clause(out, nesting=self.rng.choices((0, 1, 2), (7, 2, 1))[0])
        return out.finish(self.focus or "in_distribution")

    def nested(self, kind: str, depth: int) -> Example:
        """One of NESTED, as training has it but for its depth."""
        out = Sentence()
        if kind == "clauses":
            self.clause(out, nesting=depth)
        else:
            self.transitive(out, object_pps=depth)
        return out.finish(kind)

    def clause(self, s: Sentence, nesting: int = 0) -> int:
        """Writes a clause and returns the slot of its verb."""
        if nesting:
            lemma, past = self.rng.choice(SAYING)
            subject = self.noun_phrase(s, "subject")
            verb = s.say(past, lemma)
            s.link(verb, "agent", subject)
            s.say("that")
            s.link(verb, "ccomp", self.clause(s, nesting - 1))
            return verb
        kinds = (self.transitive, self.passive, self.giving, self.agent_only, self.theme_only, self.wanting)
        return self.rng.choices(kinds, (30, 20, 18, 12, 12, 8))[0](s)

    def transitive(self, s: Sentence, agent: str = "", theme: str = "", verb: str = "", subject_pps: int = 0,
                   object_pps: int | None = None) -> int:  # fmt: skip
        lemma, past, _ = self.verb(TRANSITIVE, verb, ONLY_PASSIVE)
        subject = self.noun_phrase(s, "subject", agent, subject_pps, avoid=theme)
        slot = s.say(past, lemma)
        s.link(slot, "agent", subject)
        s.link(slot, "theme", self.noun_phrase(s, "object", theme, object_pps))
        return slot

    def passive(self, s: Sentence, verb: str = "") -> int:
        lemma, _, participle = self.verb(TRANSITIVE, verb, ONLY_ACTIVE)
        subject = self.noun_phrase(s, "subject of a passive")
        s.say("was")
        slot = s.say(participle, lemma)
        s.link(slot, "theme", subject)
        if self.rng.random() < 0.5:
            s.say("by")
            s.link(slot, "agent", self.noun_phrase(s, "agent of a passive"))
        return slot

    def giving(self, s: Sentence, verb: str = "", to: bool | None = None) -> int:
        lemma, past = self.verb(GIVING, verb)
        to = (lemma == ONLY_TO_DATIVE or self.rng.random() < 0.5) if to is None else to
        subject = self.noun_phrase(s, "subject")
        slot = s.say(past, lemma)
        s.link(slot, "agent", subject)
        for role in ("theme", "recipient") if to else ("recipient", "theme"):
            if to and role == "recipient":
                s.say("to")
            s.link(slot, role, self.noun_phrase(s, "object", pps=None if role == "theme" else 0))
        return slot

    def agent_only(self, s: Sentence) -> int:
        return self.intransitive(s, AGENT_ONLY, "agent")

    def theme_only(self, s: Sentence) -> int:
        return self.intransitive(s, THEME_ONLY, "theme")

    def intransitive(self, s: Sentence, verbs: list[list[str]], role: str) -> int:
        lemma, past = self.rng.choice(verbs)
        subject = self.noun_phrase(s, "subject")
        slot = s.say(past, lemma)
        s.link(slot, role, subject)
        return slot

    def wanting(self, s: Sentence) -> int:
        lemma, past = self.rng.choice(WANTING)
        subject = self.noun_phrase(s, "subject")
        slot = s.say(past, lemma)
        s.link(slot, "agent", subject)
        s.say("to")
        wanted, _ = self.rng.choice(AGENT_ONLY)
        inner = s.say(wanted, wanted)
        s.link(slot, "xcomp", inner)
        s.link(inner, "agent", subject)
        return slot

    def verb(self, verbs: list[list[str]], wanted: str = "", held_back: str = "") -> list[str]:
        pool = [v for v in verbs if v[0] == wanted] if wanted else [v for v in verbs if v[0] != held_back]
        return self.rng.choice(pool)

    def noun_phrase(self, s: Sentence, position: str, head: str = "", pps: int | None = None, avoid: str = "") -> int:
        """Writes a noun phrase and returns its slot. Unless told, only objects carry prepositional phrases."""
        used = {*s.labels.values(), avoid}
        if not head and self.rng.random() < 0.3 and not pps:
            head = self.pick([n for n in NAMES if position == "subject" or n != ONLY_SUBJECT_NAME], used)
        if head in NAMES:
            return s.say(head, head)
        if not head:
            out_of_place = ONLY_OBJECT if position == "subject" else ONLY_SUBJECT
            if position.endswith("passive"):  # the two words are kept out of passives altogether
                pool = [n for n in NOUNS if n not in (ONLY_OBJECT, ONLY_SUBJECT)]
            else:
                pool = [n for n in NOUNS if n != out_of_place]
            head = self.pick(pool, used)
        noun = self.article_and_noun(s, head)
        if pps is None:
            pps = self.rng.choices((0, 1, 2), (75, 18, 7))[0] if position == "object" else 0
        inner = noun
        for _ in range(pps):
            preposition = self.rng.choice(PREPOSITIONS)
            s.say(preposition)
            place = self.article_and_noun(s, self.pick(PLACES, set(s.labels.values())))
            s.link(inner, f"nmod.{preposition}", place)
            inner = place
        return noun

    def article_and_noun(self, s: Sentence, noun: str) -> int:
        if self.rng.random() < 0.5:
            article = s.say("the", cogs.ARTICLE)
            s.link(article, cogs.ARTICLE_EDGE, article + 1)
        else:
            s.say("a")
        return s.say(noun, noun)

    def pick(self, pool: list[str], used: set[str]) -> str:
        return self.rng.choice([word for word in pool if word not in used] or pool)


def generate(size: int = 4000, seed: int = 0) -> dict[str, list[Example]]:
    """size training sentences, a tenth of that for dev and for test, and as many again (at most 1,000 a
    category) for gen; all different."""
    if size < 10:
        raise DataError(f"mini needs at least 10 training sentences, not {size}")
    rng = random.Random(f"mini {seed}")
    seen: set[tuple[str, ...]] = set()

    def draw(grammar: Grammar, count: int) -> list[Example]:
        return _different(grammar.sentence, count, seen, f"{size:,} training sentences")

    ordinary = Grammar(rng)
    small = max(size // 10, len(CATEGORIES))
    data = {"train": draw(ordinary, size), "dev": draw(ordinary, small), "test": draw(ordinary, small)}
    data["gen"] = [
        replace(example, category=category)
        for category in CATEGORIES
        for example in draw(Grammar(rng, category), min(small // len(CATEGORIES), 1000))
    ]
    return data


def nested(kind: str, depth: int, count: int, seed: int = 0, unlike: Iterable[tuple[str, ...]] = ()) -> list[Example]:
    """Different sentences with clauses, or prepositional phrases of an object, exactly `depth` deep; none of `unlike`.

    They depend on no other depth. There are ten places: in more than ten prepositional phrases some come again, which
    they never do in training.
    """
    grammar = Grammar(random.Random(f"mini {kind} {depth} {seed}"))
    return _different(lambda: grammar.nested(kind, depth), count, set(unlike), f"{count:,} sentences of depth {depth}")


def _different(sentence: Callable[[], Example], count: int, seen: set[tuple[str, ...]], what: str) -> list[Example]:
    """`count` sentences that are not seen yet; now they are."""
    drawn: list[Example] = []
    repeats = 0
    while len(drawn) < count:
        example = sentence()
        repeats = repeats + 1 if example.tokens in seen else 0
        if repeats > 10_000:
            raise DataError(f"mini can't make {what} that are all different; ask for fewer")
        if not repeats:
            seen.add(example.tokens)
            drawn.append(example)
    return drawn


def source(size: int = 4000, seed: int = 0) -> Source:
    data = generate(size, seed)
    return Source("mini", tuple(data), lambda split: data[split], "cogs", slots_are_tokens=True)
