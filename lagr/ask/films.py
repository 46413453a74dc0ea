"""A small graph of films with the predicates of CFQ's queries, so that questions have true answers.

`python -m lagr.ask.films` writes films.ttl and films.tsv beside this file. The facts are public; whatever is not here
is left out, not denied. CFQ's data has most relations in both directions, and some of them through a node of their own
(a role in a film, a marriage): so has this graph.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from pathlib import Path

from lagr.ask.query import FREEBASE

HERE = "http://example.org/films/"

# Who did what, by film. cast: actor, and whom they play.
FILMS: dict[str, dict[str, str]] = {
    "Alien": {
        "director": "Ridley Scott", "writer": "Dan O'Bannon", "producer": "Gordon Carroll, David Giler, Walter Hill",
        "executive": "Ronald Shusett", "editor": "Terry Rawlings", "cinematographer": "Derek Vanlint",
        "costumes": "John Mollo", "art": "Roger Christian, Leslie Dilley", "company": "Brandywine Productions",
        "distributor": "20th Century Fox",
        "cast": "Sigourney Weaver as Ellen Ripley, Tom Skerritt as Dallas, John Hurt as Kane, Ian Holm as Ash",
    },
    "Aliens": {
        "prequel": "Alien", "director": "James Cameron", "writer": "James Cameron", "producer": "Gale Anne Hurd",
        "executive": "Gordon Carroll, David Giler, Walter Hill", "editor": "Ray Lovejoy",
        "cinematographer": "Adrian Biddle", "costumes": "Emma Porteous", "company": "Brandywine Productions",
        "distributor": "20th Century Fox",
        "cast": "Sigourney Weaver as Ellen Ripley, Michael Biehn as Dwayne Hicks, Lance Henriksen as Bishop, "
                "Bill Paxton as William Hudson",
    },
    "Alien 3": {
        "prequel": "Aliens", "director": "David Fincher", "writer": "David Giler, Walter Hill, Larry Ferguson",
        "producer": "Gordon Carroll, David Giler, Walter Hill", "editor": "Terry Rawlings",
        "cinematographer": "Alex Thomson", "company": "Brandywine Productions", "distributor": "20th Century Fox",
        "cast": "Sigourney Weaver as Ellen Ripley, Lance Henriksen as Bishop, Charles Dance as Jonathan Clemens",
    },
    "Blade Runner": {
        "director": "Ridley Scott", "writer": "Hampton Fancher, David Peoples", "producer": "Michael Deeley",
        "executive": "Hampton Fancher", "editor": "Terry Rawlings", "cinematographer": "Jordan Cronenweth",
        "costumes": "Michael Kaplan", "art": "David L. Snyder", "distributor": "Warner Bros.",
        "cast": "Harrison Ford as Rick Deckard, Rutger Hauer as Roy Batty, Sean Young as Rachael",
    },
    "Blade Runner 2049": {
        "prequel": "Blade Runner", "director": "Denis Villeneuve", "writer": "Hampton Fancher, Michael Green",
        "executive": "Ridley Scott", "editor": "Joe Walker", "cinematographer": "Roger Deakins",
        "distributor": "Warner Bros.", "cast": "Harrison Ford as Rick Deckard, Ryan Gosling as K, Ana de Armas as Joi",
    },
    "Gladiator": {
        "director": "Ridley Scott", "writer": "David Franzoni, John Logan, William Nicholson",
        "producer": "David Franzoni, Douglas Wick, Branko Lustig", "editor": "Pietro Scalia",
        "cinematographer": "John Mathieson", "costumes": "Janty Yates", "company": "Scott Free Productions",
        "distributor": "DreamWorks Pictures", "cast": "Russell Crowe as Maximus, Joaquin Phoenix as Commodus",
    },
    "Thelma & Louise": {
        "director": "Ridley Scott", "writer": "Callie Khouri", "producer": "Ridley Scott, Mimi Polk",
        "editor": "Thom Noble", "cinematographer": "Adrian Biddle", "distributor": "Metro-Goldwyn-Mayer",
        "cast": "Susan Sarandon as Louise Sawyer, Geena Davis as Thelma Dickinson",
    },
    "Morgan": {
        "director": "Luke Scott", "writer": "Seth Owen", "producer": "Ridley Scott",
        "company": "Scott Free Productions", "distributor": "20th Century Fox",
        "cast": "Kate Mara as Lee Weathers, Anya Taylor-Joy as Morgan",
    },
    "The Terminator": {
        "director": "James Cameron", "writer": "James Cameron, Gale Anne Hurd", "producer": "Gale Anne Hurd",
        "editor": "Mark Goldblatt", "cinematographer": "Adam Greenberg", "distributor": "Orion Pictures",
        "cast": "Arnold Schwarzenegger as T-800, Linda Hamilton as Sarah Connor, Michael Biehn as Kyle Reese",
    },
    "Terminator 2: Judgment Day": {
        "prequel": "The Terminator", "director": "James Cameron", "writer": "James Cameron, William Wisher",
        "producer": "James Cameron", "executive": "Gale Anne Hurd, Mario Kassar",
        "editor": "Mark Goldblatt, Conrad Buff, Richard A. Harris", "cinematographer": "Adam Greenberg",
        "company": "Lightstorm Entertainment",
        "cast": "Arnold Schwarzenegger as T-800, Linda Hamilton as Sarah Connor",
    },
    "Titanic": {
        "director": "James Cameron", "writer": "James Cameron", "producer": "James Cameron, Jon Landau",
        "editor": "James Cameron, Conrad Buff, Richard A. Harris", "cinematographer": "Russell Carpenter",
        "costumes": "Deborah Lynn Scott", "company": "Lightstorm Entertainment", "distributor": "Paramount Pictures",
        "cast": "Leonardo DiCaprio as Jack Dawson, Kate Winslet as Rose DeWitt Bukater, Suzy Amis as Lizzy Calvert",
    },
    "Point Break": {
        "director": "Kathryn Bigelow", "writer": "W. Peter Iliff", "executive": "James Cameron",
        "editor": "Howard Smith", "cinematographer": "Donald Peterman", "distributor": "20th Century Fox",
        "cast": "Keanu Reeves as Johnny Utah, Patrick Swayze as Bodhi",
    },
    "Strange Days": {
        "director": "Kathryn Bigelow", "writer": "James Cameron, Jay Cocks", "producer": "James Cameron",
        "editor": "Howard Smith", "cinematographer": "Matthew F. Leonetti", "company": "Lightstorm Entertainment",
        "distributor": "20th Century Fox", "cast": "Ralph Fiennes as Lenny Nero, Angela Bassett as Mace",
    },
    "The Hurt Locker": {
        "director": "Kathryn Bigelow", "writer": "Mark Boal", "producer": "Kathryn Bigelow, Mark Boal",
        "editor": "Chris Innis, Bob Murawski", "cinematographer": "Barry Ackroyd",
        "cast": "Jeremy Renner as William James, Anthony Mackie as J. T. Sanborn",
    },
    "2001: A Space Odyssey": {
        "director": "Stanley Kubrick", "writer": "Stanley Kubrick, Arthur C. Clarke", "producer": "Stanley Kubrick",
        "editor": "Ray Lovejoy", "cinematographer": "Geoffrey Unsworth", "distributor": "Metro-Goldwyn-Mayer",
        "cast": "Keir Dullea as David Bowman, Gary Lockwood as Frank Poole",
    },
}  # fmt: skip

WOMEN = """Sigourney Weaver, Gale Anne Hurd, Emma Porteous, Sean Young, Ana de Armas, Janty Yates, Callie Khouri,
    Mimi Polk, Susan Sarandon, Geena Davis, Kate Mara, Anya Taylor-Joy, Linda Hamilton, Deborah Lynn Scott,
    Kate Winslet, Suzy Amis, Kathryn Bigelow, Angela Bassett, Chris Innis, Jordan Scott"""
NATIONALITIES: dict[str, str] = {
    "m.07ssc": """Ridley Scott, Tony Scott, Jake Scott, Luke Scott, Jordan Scott, John Hurt, Ian Holm, Terry Rawlings,
        John Mollo, Roger Christian, Ray Lovejoy, Adrian Biddle, Alex Thomson, Charles Dance, Michael
        Deeley, Joe Walker, Roger Deakins, John Mathieson, Janty Yates, William Nicholson, Kate Winslet,
        Ralph Fiennes, Barry Ackroyd, Arthur C. Clarke, Geoffrey Unsworth""",
    "m.09c7w0": """Sigourney Weaver, Tom Skerritt, Dan O'Bannon, Ronald Shusett, Gordon Carroll, David Giler, Walter
        Hill, Gale Anne Hurd, Michael Biehn, Lance Henriksen, Bill Paxton, David Fincher, Hampton Fancher,
        David Peoples, Jordan Cronenweth, Harrison Ford, Sean Young, Michael Kaplan, Michael Green, Susan
        Sarandon, Geena Davis, Callie Khouri, Kate Mara, Arnold Schwarzenegger, Linda Hamilton, Mark
        Goldblatt, Conrad Buff, William Wisher, Jon Landau, Russell Carpenter, Leonardo DiCaprio, Suzy Amis,
        Kathryn Bigelow, Patrick Swayze, Angela Bassett, Jay Cocks, Mark Boal, Jeremy Renner, Anthony
        Mackie, Stanley Kubrick, George Lucas, Roger Corman""",
    "m.0d060g": "James Cameron, Derek Vanlint, Denis Villeneuve, Ryan Gosling, Keanu Reeves",
    "m.059j2": "Rutger Hauer",
    "m.03rjj": "Pietro Scalia",
}  # fmt: skip
MARRIED = (
    ("James Cameron", "Gale Anne Hurd"), ("James Cameron", "Kathryn Bigelow"), ("James Cameron", "Linda Hamilton"),
    ("James Cameron", "Suzy Amis"),
)  # fmt: skip
SIBLINGS = (("Ridley Scott", "Tony Scott"),)
CHILDREN = (("Ridley Scott", "Jake Scott"), ("Ridley Scott", "Luke Scott"), ("Ridley Scott", "Jordan Scott"))
INFLUENCED = (
    ("Stanley Kubrick", "Ridley Scott"), ("Stanley Kubrick", "James Cameron"), ("George Lucas", "James Cameron"),
)  # fmt: skip
FOUNDED = (
    ("Ridley Scott", "Scott Free Productions"), ("Tony Scott", "Scott Free Productions"),
    ("James Cameron", "Lightstorm Entertainment"), ("Roger Corman", "New World Pictures"),
    ("Gordon Carroll", "Brandywine Productions"), ("David Giler", "Brandywine Productions"),
    ("Walter Hill", "Brandywine Productions"),
)  # fmt: skip
EMPLOYED = (("New World Pictures", "James Cameron"), ("New World Pictures", "Gale Anne Hurd"))
ACQUIRED = (("The Walt Disney Company", "20th Century Fox"), ("Amazon", "Metro-Goldwyn-Mayer"))
ALSO_DIRECTORS = ("Tony Scott", "Jake Scott", "Jordan Scott", "George Lucas", "Roger Corman")

OTHER_NAMES = (
    ("Terminator 2", "Terminator 2: Judgment Day"), ("Alien³", "Alien 3"), ("Thelma and Louise", "Thelma & Louise"),
    ("Ripley", "character Ellen Ripley"), ("Fox", "20th Century Fox"), ("MGM", "Metro-Goldwyn-Mayer"),
    ("Disney", "The Walt Disney Company"), ("Scott Free", "Scott Free Productions"), ("2001", "2001: A Space Odyssey"),
)  # fmt: skip
# Freebase's own: the nouns for CFQ's adjectives. A capital keeps them apart from the adjectives.
FREEBASE_NAMES = {
    "m.05zppz": "Male", "m.02zsn": "Female", "m.07ssc": "the United Kingdom", "m.09c7w0": "the United States",
    "m.0d060g": "Canada", "m.059j2": "the Netherlands", "m.03rjj": "Italy",
}  # fmt: skip

# What someone does for a film: the class of those who do it, the predicate from them to the film, and the one back.
WORK = {
    "director": ("film.director", "film.director.film", "film.film.directed_by"),
    "writer": ("film.writer", "film.writer.film", "film.film.written_by"),
    "producer": ("film.producer", "film.producer.film", "film.film.produced_by"),
    "executive": ("film.producer", "film.producer.films_executive_produced", "film.film.executive_produced_by"),
    "editor": ("film.editor", "film.editor.film", "film.film.edited_by"),
    "cinematographer": ("film.cinematographer", "film.cinematographer.film", "film.film.cinematography"),
    "costumes": (
        "film.film_costumer_designer",
        "film.film_costumer_designer.costume_design_for_film",
        "film.film.costume_design_by",
    ),
    "art": (
        "film.film_art_director", "film.film_art_director.films_art_directed", "film.film.film_art_direction_by",
    ),
    "company": ("film.production_company", "film.production_company.films", "film.film.production_companies"),
}  # fmt: skip


class Triples:
    """The graph while it is made: what is said of every thing, and what every thing is called."""

    def __init__(self) -> None:
        self.said: dict[str, set[str]] = defaultdict(set)  # subject → "predicate object"
        self.names: dict[str, str] = {}  # the end of an IRI → name
        self._between = 0

    def say(self, subject: str, predicate: str, target: str) -> None:
        self.said[subject].add(f"ns:{predicate} {target}")

    def thing(self, name: str, *kinds: str, prefix: str = "") -> str:
        end = prefix + slug(name)
        self.names[end] = name
        self.said[f":{end}"].update(f"a ns:{kind}" for kind in kinds)
        return f":{end}"

    def person(self, name: str, *kinds: str) -> str:
        return self.thing(name, "people.person", *kinds)

    def company(self, name: str, *kinds: str) -> str:
        return self.thing(name, "business.employer", *kinds)

    def both_ways(self, one: str, there: str, other: str, back: str) -> None:
        self.say(one, there, other)
        self.say(other, back, one)

    def between(self, *ends: tuple[str, str, str]) -> None:
        """A node between things, for each: the thing, the predicate to the node, and the one from the node to it."""
        self._between += 1
        node = f"_:n{self._between}"
        for thing, to_node, from_node in ends:
            if to_node:
                self.say(thing, to_node, node)
            self.say(node, from_node, thing)


def slug(name: str) -> str:
    """The name as the end of an IRI.

    >>> slug("Dan O'Bannon"), slug("Thelma & Louise")
    ('dan-o-bannon', 'thelma-louise')
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def listed(names: str) -> list[str]:
    return [" ".join(name.split()) for name in names.split(",") if name.strip()]


def build() -> Triples:
    triples = Triples()
    for title, facts in FILMS.items():
        film = triples.thing(title, "film.film")
        for work, (kind, there, back) in WORK.items():
            for name in listed(facts.get(work, "")):
                who = triples.company(name, kind) if work == "company" else triples.person(name, kind)
                triples.both_ways(who, there, film, back)
        for name in listed(facts.get("distributor", "")):
            relation = "film.film_film_distributor_relationship"
            distributor = triples.company(name, "film.film_distributor")
            triples.between(
                (film, "film.film.distributors", f"{relation}.film"),
                (distributor, "film.film_distributor.films_distributed", f"{relation}.distributor"),
            )
        if "prequel" in facts:
            triples.both_ways(film, "film.film.prequel", triples.thing(facts["prequel"]), "film.film.sequel")
        for role in listed(facts["cast"]):
            actor, character = role.split(" as ")
            triples.between(
                (film, "film.film.starring", "film.performance.film"),
                (triples.person(actor, "film.actor"), "film.actor.film", "film.performance.actor"),
                (
                    triples.thing(character, "fictional_universe.fictional_character", prefix="character-"),
                    "",
                    "film.performance.character",
                ),
            )
    _people(triples)
    _companies(triples)
    return triples


def _people(triples: Triples) -> None:
    for name in ALSO_DIRECTORS:
        triples.person(name, "film.director")
    for pairs, to_node, from_node in (
        (MARRIED, "people.person.spouse_s", "people.marriage.spouse"),
        (SIBLINGS, "people.person.sibling_s", "people.sibling_relationship.sibling"),
    ):
        for pair in pairs:
            triples.between(*((triples.person(name), to_node, from_node) for name in pair))
    for parent, child in CHILDREN:
        triples.both_ways(
            triples.person(parent), "people.person.children", triples.person(child), "people.person.parents"
        )
    for one, other in INFLUENCED:
        influence = "influence.influence_node.influenced"
        triples.both_ways(triples.person(one), influence, triples.person(other), f"{influence}_by")
    women = listed(WOMEN)
    everyone = [name for end, name in triples.names.items() if "a ns:people.person" in triples.said[f":{end}"]]
    for name in everyone:
        gender = "m.02zsn" if name in women else "m.05zppz"
        triples.say(triples.person(name), "people.person.gender", f"ns:{gender}")
    for country, names in NATIONALITIES.items():
        for name in listed(names):
            triples.say(triples.person(name), "people.person.nationality", f"ns:{country}")


def _companies(triples: Triples) -> None:
    for name, company in FOUNDED:
        triples.both_ways(
            triples.person(name), "organization.organization_founder.organizations_founded",
            triples.company(company), "organization.organization.founders",
        )  # fmt: skip
    for company, name in EMPLOYED:
        triples.between(
            (triples.company(company), "business.employer.employees", "business.employment_tenure.company"),
            (triples.person(name), "people.person.employment_history", "business.employment_tenure.person"),
        )
    for buyer, bought in ACQUIRED:
        organization, deal = "organization.organization", "business.acquisition"
        triples.between(
            (triples.company(buyer), f"{organization}.companies_acquired", f"{deal}.acquiring_company"),
            (triples.company(bought), f"{organization}.acquired_by", f"{deal}.company_acquired"),
        )


def turtle(triples: Triples) -> str:
    lines = ["# Made by `python -m lagr.ask.films`: edit the facts there.", ""]
    lines += [f"@prefix : <{HERE}> .", f"@prefix ns: <{FREEBASE}> .", ""]
    for subject, said in triples.said.items():
        lines.append(f"{subject}\n  " + " ;\n  ".join(sorted(said)) + " .")
    return "\n".join(lines) + "\n"


def table(triples: Triples) -> str:
    rows = [(name, HERE + end) for end, name in triples.names.items()]
    rows += [(other, HERE + slug(name)) for other, name in OTHER_NAMES]
    rows += [(name, FREEBASE + number) for number, name in FREEBASE_NAMES.items()]
    return "name\tiri\n" + "".join(f"{name}\t{iri}\n" for name, iri in rows)


if __name__ == "__main__":
    made = build()
    Path(__file__).with_name("films.ttl").write_text(turtle(made), encoding="utf-8")
    Path(__file__).with_name("films.tsv").write_text(table(made), encoding="utf-8")
