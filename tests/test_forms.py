from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagr.errors import DataError, FormError
from lagr.forms import cogs, sparql
from lagr.graph import Edge, Graph

EATEN = "* cake ( x _ 4 ) ; hedgehog ( x _ 1 ) AND eat . agent ( x _ 2 , x _ 1 ) AND eat . theme ( x _ 2 , x _ 4 )"
SENTENCE = "A hedgehog ate the cake .".split()


def test_the_papers_example_becomes_the_papers_graph() -> None:
    graph = cogs.read(EATEN, SENTENCE)
    assert dict(zip(graph.slots or (), graph.nodes, strict=True)) == {1: "hedgehog", 2: "eat", 3: "*", 4: "cake"}
    named = {(graph.nodes[e.source], e.label, graph.nodes[e.target]) for e in graph.edges}
    assert named == {("eat", "agent", "hedgehog"), ("eat", "theme", "cake"), ("*", "article", "cake")}
    assert cogs.write(graph) == EATEN


def test_where_an_article_sits_is_not_written() -> None:
    graph = cogs.read(EATEN, SENTENCE)
    moved = graph.with_slots(
        [0 if label == "*" else slot for label, slot in zip(graph.nodes, graph.slots or (), strict=True)]
    )
    assert cogs.write(moved) == EATEN


def test_a_name_is_aligned_with_its_word() -> None:
    graph = cogs.read("want . agent ( x _ 1 , Ida ) AND want . xcomp ( x _ 1 , x _ 3 ) AND sing . agent ( x _ 3 , Ida )",
                      "Ida wanted to sing .".split())  # fmt: skip
    assert graph.nodes == ("Ida", "want", "sing") and graph.slots == (0, 1, 3)


@pytest.mark.parametrize("form", ["LAMBDA a . shark ( a )", "Paula"])
def test_one_word_nouns_and_names_come_back(form: str) -> None:
    assert cogs.write(cogs.read(form, ["x"])) == form and not cogs.is_lossy(form)


def test_of_a_one_word_verb_only_the_node_stays() -> None:
    form = "LAMBDA a . LAMBDA b . LAMBDA e . find . agent ( e , b ) AND find . theme ( e , a )"
    assert cogs.is_lossy(form) and cogs.read(form, ["find"]).nodes == ("find",)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("eat ( x _ 9 )", "x _ 9, but the sentence has 6 tokens"),
        ("eat . agent ( x _ 2 , x _ 1 )", "nothing says what it is"),
        ("cake ( x _ 1 ) AND eat ( x _ 1 )", "both 'cake' and 'eat'"),
        ("eat . agent ( x _ 2 , Otto )", "no name that is in the sentence"),
        ("eat agent", "is no conjunct"),
        ("* cake ( x _ 0 ) ; eat . theme ( x _ 2 , x _ 0 )", "no token before"),
        ("", "is no conjunct"),
    ],
)
def test_a_bad_cogs_form_names_the_conjunct(form: str, complaint: str) -> None:
    with pytest.raises(FormError, match=complaint):
        cogs.read(form, SENTENCE)


def test_a_graph_without_slots_has_no_cogs_form() -> None:
    with pytest.raises(FormError, match="slots"):
        cogs.write(Graph(("a", "b"), (Edge(0, "agent", 1),)))


def test_unconnected_nodes_are_left_out_of_forms() -> None:
    graph = cogs.read(EATEN, SENTENCE)
    stray = Graph((*graph.nodes, "dog"), graph.edges, (*(graph.slots or ()), 0))
    assert cogs.write(stray) == EATEN
    query = sparql.read(QUERY)
    assert sparql.write(Graph((*query.nodes, "M7", "ns:film.actor"), query.edges)) == QUERY


QUERY = """SELECT DISTINCT ?x0 WHERE {
?x0 a ns:film.actor .
?x0 ns:film.editor.film M1 .
?x0 ns:film.editor.film M2 .
FILTER ( ?x0 != M1 )
}"""


def test_triples_of_one_predicate_share_a_node() -> None:
    graph = sparql.read(QUERY)
    assert sorted(graph.nodes) == ["M1", "M2", "ns:film.actor", "ns:film.editor.film", "select_?x0"]
    named = {(graph.nodes[e.source], e.label, graph.nodes[e.target]) for e in graph.edges}
    assert named == {
        ("select_?x0", "agent", "ns:film.actor"), ("select_?x0", "agent", "ns:film.editor.film"),
        ("ns:film.editor.film", "theme", "M1"), ("ns:film.editor.film", "theme", "M2"), ("select_?x0", "FILTER", "M1"),
    }  # fmt: skip
    assert sparql.write(graph) == QUERY


entities = st.sampled_from(["?x0", "?x1", "?x2", "M0", "M1", "M12", "ns:m.02zsn"])
triples = st.tuples(entities, st.sampled_from(["ns:a.b", "ns:c.d/ns:e.f|ns:g.h", "^ns:p.q"]), entities).map(" ".join)
classes = st.tuples(entities, st.sampled_from(["ns:film.actor", "ns:people.person"])).map(" a ".join)
filters = st.tuples(entities, entities).filter(lambda p: p[0] != p[1]).map(lambda p: f"FILTER ( {p[0]} != {p[1]} )")


@given(st.lists(st.one_of(triples, classes, filters), min_size=1, max_size=12), st.booleans())
def test_any_query_of_the_fragment_comes_back(clauses: list[str], selects: bool) -> None:
    kept = [clause for clause in clauses if not clause.startswith("FILTER") or clauses.count(clause) <= 2]
    kept = sorted(kept or ["?x0 a ns:film.actor"])
    selects = selects and any("?x0" in clause for clause in kept)
    query = "\n".join([sparql.SELECT if selects else sparql.COUNT, " .\n".join(kept), "}"])
    assert sparql.write(sparql.read(query)) == query
    assert sparql.expand(sparql.compress(query)) == query == sparql.join(query.split())
    turned = "\n".join([sparql.SELECT if selects else sparql.COUNT, " .\n".join(kept[::-1]), "}"])
    assert sparql.in_order(turned) == query


def test_a_compressed_query_merges_the_triples_of_a_predicate() -> None:
    compressed = (
        "SELECT DISTINCT ?x0 WHERE { ?x0 a ns:film.actor . ?x0 ns:film.editor.film M1 M2 . FILTER ( ?x0 != M1 ) }"
    )
    assert " ".join(sparql.compress(QUERY)) == compressed and sparql.expand(compressed.split()) == QUERY


@pytest.mark.parametrize(
    "tokens",
    [
        "",
        "SELECT",
        "SELECT count(*) WHERE { M0 }",
        "SELECT count(*) WHERE { ns:a.b M0 }",
        "SELECT count(*) WHERE { M0 a ns:b",
    ],
)
def test_tokens_that_are_no_compressed_query_are_refused(tokens: str) -> None:
    with pytest.raises(FormError):
        sparql.expand(tokens.split())


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("SELECT ?x WHERE {\n?x a ns:film.actor\n}", "SELECT ?x WHERE"),
        ("SELECT count(*) WHERE {\n?x0 ns:a.b M1 ;\n}", "?x0 ns:a.b M1 ;"),
        ("SELECT count(*) WHERE {\nOPTIONAL { ?x0 ns:a.b M1 }\n}", "OPTIONAL"),
        ("SELECT count(*) WHERE {\nFILTER ( ?x0 < M1 )\n}", "FILTER ( ?x0 < M1 )"),
        ("SELECT count(*) WHERE {\n?x0 a ns:film.actor\n?x1 a ns:film.actor\n}", "?x0 a ns:film.actor"),
        ("SELECT count(*) WHERE {\n}", "at least one clause"),
        ("SELECT count(*) WHERE {\n?x1 a ns:film.actor .\n?x0 a ns:film.actor\n}", "not sorted"),
        ("SELECT DISTINCT ?x0 WHERE {\nM0 a ns:film.actor\n}", "no clause mentions"),
        ("DROP ALL", "DROP ALL"),
    ],
)
def test_a_query_outside_the_fragment_is_refused_by_its_clause(query: str, clause: str) -> None:
    with pytest.raises(DataError) as caught:
        sparql.read(query)
    assert clause in str(caught.value)


@pytest.mark.parametrize(
    "graph",
    [
        Graph(("ns:a.b", "M0"), (Edge(0, "theme", 1),)),
        Graph(("M1", "M0"), (Edge(0, "agent", 1),)),
        Graph(("M1", "M0")),
        Graph(("ns:a.b", "ns:c.d"), (Edge(0, "FILTER", 1),)),
    ],
)
def test_a_graph_that_is_no_query_is_refused(graph: Graph) -> None:
    with pytest.raises(FormError):
        sparql.write(graph)
