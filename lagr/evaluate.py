"""How good predictions are: exact match of the form, by category, and what went wrong.

A prediction is right when its form is the form of the data, character for character; where the data has graphs alone,
when the graphs are isomorphic. Of seq2seq, which may write conjuncts in any order, `order_free` is the share of forms
that read into the right graph. Accuracies are in per cent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lagr.datasets import Example
from lagr.errors import FormError
from lagr.forms import FORMALISMS, Formalism
from lagr.graph import Graph, blindly_isomorphic, neighbourhoods

if TYPE_CHECKING:
    from lagr.parser import AnyParser, Parse

# The paper's kinds (appendix, error analysis), and what is left.
KINDS = {
    "wrong_edge_label": "a wrong edge label between right nodes",
    "wrong_edge_nodes": "a right edge label between wrong nodes",
    "missing_node": "a node is missing",
    "extra_node": "a node too many",
    "unconnected_node": "a right node that no edge connects",
    "missing_edge": "an edge is missing",
    "extra_edge": "an edge too many",
    "unreadable": "a form that can't be read",
    "other": "the graph is right, its form is not: nodes are in other slots, or conjuncts in another order",
}


@dataclass(frozen=True)
class Score:
    n: int = 0
    right: int = 0

    @property
    def exact(self) -> float:
        return 100 * self.right / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy (Wilson)."""
        if not self.n:
            return 0.0, 100.0
        z, p = 1.959963984540054, self.right / self.n
        middle = p + z * z / (2 * self.n)
        spread = z * math.sqrt(p * (1 - p) / self.n + z * z / (4 * self.n * self.n))
        scale = 1 + z * z / self.n
        low = 100 * (middle - spread) / scale if self.right else 0.0  # exact at the ends, where rounding isn't
        high = 100 * (middle + spread) / scale if self.right < self.n else 100.0
        return low, high

    def __add__(self, right: bool) -> Score:
        return Score(self.n + 1, self.right + bool(right))


@dataclass
class Evaluation:
    split: str
    score: Score = Score()
    written: bool = False  # the graphs were read from forms that seq2seq wrote
    isomorphic: Score = Score()  # the graph is right, wherever its nodes are
    blind: Score = Score()  # the same with node labels forgotten, as the published code scores CFQ
    nodes: Score = Score()  # all node labels are right
    edges: Score = Score()  # all edges are right, of the sentences whose nodes are
    by_category: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    isomorphic_by_category: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def to_dict(self) -> dict[str, Any]:
        low, high = self.score.interval
        return {
            "split": self.split,
            "n": self.score.n,
            "exact": self.score.exact,
            "low": low,
            "high": high,
            "order_free" if self.written else "isomorphic": self.isomorphic.exact,
            "blind": self.blind.exact,
            "nodes": self.nodes.exact,
            "edges": self.edges.exact,
            "edges_n": self.edges.n,
            "by_category": {
                name: {"n": s.n, "exact": s.exact, "low": s.interval[0], "high": s.interval[1]}
                | ({"order_free": self.isomorphic_by_category[name].exact} if self.written else {})
                for name, s in sorted(self.by_category.items())
            },
            "errors": {
                kind: {"n": self.kinds[kind], "meaning": meaning, "examples": self.examples[kind]}
                for kind, meaning in KINDS.items()
            },
        }


def evaluate_parser(
    parser: AnyParser, examples: Sequence[Example], split: str = "", progress: Callable[[int], None] = lambda done: None
) -> Evaluation:
    """Parses the sentences and compares with what they mean. progress: told how many are parsed."""
    from lagr.parser import FormParser

    sentences = [example.tokens for example in examples]
    if isinstance(parser, FormParser):
        written = parser.write(sentences, progress)
        return evaluate(examples, [one.graph for one in written], None, split, forms=[one.form for one in written])
    found = parser.decode(sentences, progress)
    graphs = [one.graph.at_tokens(parser.model.graph_layers) for one in found]
    return evaluate(examples, graphs, FORMALISMS.get(parser.formalism or ""), split)


def evaluate(
    examples: Sequence[Example],
    predicted: Sequence[Graph | None],
    formalism: Formalism | None,
    split: str = "",
    shown: int = 3,
    forms: Sequence[str | None] | None = None,
) -> Evaluation:
    """Scores and error kinds; of every kind `shown` examples are kept.

    forms: those that the graphs were read from, if they were; None in place of a graph where that was not possible.
    Otherwise the formalism gives the graphs' forms.
    """
    result = Evaluation(split, written=forms is not None)
    for number, (example, graph) in enumerate(zip(examples, predicted, strict=True)):
        gold = example.form if forms is None else example.written_form
        form = _form(graph, formalism) if forms is None else forms[number]
        same_graph = graph == example.graph
        right = same_graph if gold is None or (forms is None and formalism is None) else form == gold
        same_nodes = graph is not None and sorted(graph.nodes) == sorted(example.graph.nodes)
        result.score += right
        result.isomorphic += same_graph
        result.blind += same_graph or (graph is not None and blindly_isomorphic(graph, example.graph))
        result.nodes += same_nodes
        if same_nodes:
            result.edges += same_graph
        if example.category:
            result.by_category[example.category] += right
            result.isomorphic_by_category[example.category] += same_graph
        if right:
            continue
        kinds = {"unreadable"} if graph is None else error_kinds(example.graph, graph) or {"other"}
        for kind in kinds:
            result.kinds[kind] += 1
            if len(result.examples[kind]) < shown:
                result.examples[kind].append(
                    {
                        "sentence": " ".join(example.tokens),
                        "category": example.category,
                        "gold": gold or example.graph.to_dict(),
                        "predicted": form or ("no form" if graph is None else _brief(graph)),
                    }
                )
    return result


def is_right(parse: Parse, example: Example) -> bool:
    """Whether a parse is an exact match: its form, or where forms can't tell, its graph."""
    written = not parse.nodes and parse.form is not None  # by seq2seq, which learns forms as the data has them
    gold = example.written_form if written else example.form
    if gold is None or (parse.form is None and parse.problem is None):  # the parser has no formalism
        return parse.graph == example.graph
    return parse.form == gold


def error_kinds(gold: Graph, predicted: Graph) -> set[str]:
    """Which of KINDS set the predicted graph apart from the gold one."""
    twin = _twins(gold, predicted)  # gold node → predicted node
    back = {there: here for here, there in twin.items()}
    kinds = set()
    if len(twin) < len(gold.nodes):
        kinds.add("missing_node")
    if len(twin) < len(predicted.nodes):
        kinds.add("extra_node")
    gold_connected, connected = (_connected(g) for g in (gold, predicted))
    if any(node in gold_connected and there not in connected for node, there in twin.items()):
        kinds.add("unconnected_node")

    wanted = {
        (twin.get(e.source), twin.get(e.target)): e.label for e in gold.edges if {e.source, e.target} <= twin.keys()
    }
    found = {(e.source, e.target): e.label for e in predicted.edges}
    missing = [label for pair, label in wanted.items() if pair not in found]
    if any(pair in found and found[pair] != label for pair, label in wanted.items()):
        kinds.add("wrong_edge_label")
    for pair, label in found.items():
        if pair in wanted or not set(pair) <= back.keys():
            continue
        if label in missing:
            missing.remove(label)
            kinds.add("wrong_edge_nodes")
        else:
            kinds.add("extra_edge")
    if missing:
        kinds.add("missing_edge")
    return kinds


def _form(graph: Graph | None, formalism: Formalism | None) -> str | None:
    if graph is None or formalism is None:
        return None
    try:
        return formalism.write(graph)
    except FormError:
        return None  # a graph that has no form is no exact match, whatever it was meant to be


def _brief(graph: Graph) -> dict[str, Any] | str:
    """The graph as plain lists, unless it is the tangle that an untrained model gives."""
    return graph.to_dict() if len(graph.edges) <= 60 else f"{len(graph.nodes)} nodes, {len(graph.edges)} edges"


def _connected(graph: Graph) -> set[int]:
    return {end for edge in graph.edges for end in (edge.source, edge.target)}


def _twins(gold: Graph, predicted: Graph) -> dict[int, int]:
    """Pairs of nodes of equal label; among several, those with most neighbours in common, then those of equal slot."""
    from scipy.optimize import linear_sum_assignment

    labelled = [_by_label(graph) for graph in (gold, predicted)]
    views = [[set(view) for view in neighbourhoods(graph)] for graph in (gold, predicted)]
    twin: dict[int, int] = {}
    for label in labelled[0].keys() & labelled[1].keys():
        here, there = (nodes[label] for nodes in labelled)
        if len(here) == len(there) == 1:
            twin[here[0]] = there[0]
            continue
        likeness = np.zeros((len(here), len(there)))
        for row, i in enumerate(here):
            for column, j in enumerate(there):
                likeness[row, column] = len(views[0][i] & views[1][j])
                if gold.slots is not None and predicted.slots is not None and gold.slots[i] == predicted.slots[j]:
                    likeness[row, column] += 0.5
        rows, columns = linear_sum_assignment(likeness, maximize=True)
        twin |= {here[row]: there[column] for row, column in zip(rows, columns, strict=True)}
    return twin


def _by_label(graph: Graph) -> dict[str, list[int]]:
    nodes: dict[str, list[int]] = defaultdict(list)
    for node, label in enumerate(graph.nodes):
        nodes[label].append(node)
    return nodes
