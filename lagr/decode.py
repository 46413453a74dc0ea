"""From a distribution to graphs: the likeliest label everywhere, then `null` nodes and their edges are removed."""

from __future__ import annotations

from dataclasses import dataclass

from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution
from lagr.vocab import Vocabulary


@dataclass(frozen=True)
class Decoded:
    """A graph, with the probability of every node and edge and of the whole labelled graph it was read from."""

    graph: Graph
    node_probabilities: tuple[float, ...]
    edge_probabilities: tuple[float, ...]
    probability: float


def decode(dist: GraphDistribution, vocab: Vocabulary) -> list[Decoded]:
    """The likeliest graph of every sentence, its nodes in the order of their slots.

    All the work on slots and pairs is done on the device; the host sees the nodes and edges that are there.
    """
    best = dist.argmax()
    occupied = best.nodes != NULL
    joined = (best.edges != NULL) & occupied[:, :, None] & occupied[:, None, :]
    at_node, at_edge = occupied.nonzero(as_tuple=True), joined.nonzero(as_tuple=True)
    node_rows = zip(
        *(t.tolist() for t in (*at_node, best.nodes[at_node], dist.node_log_probs.amax(-1)[at_node].exp())), strict=True
    )
    edge_rows = zip(
        *(t.tolist() for t in (*at_edge, best.edges[at_edge], dist.edge_log_probs.amax(-1)[at_edge].exp())), strict=True
    )
    wholes = dist.log_prob(best).exp().tolist()

    nodes: list[list[tuple[int, int, float]]] = [[] for _ in wholes]
    edges: list[list[tuple[Edge, float]]] = [[] for _ in wholes]
    number: dict[tuple[int, int], int] = {}  # (sentence, slot) → node
    for sentence, slot, label, probability in node_rows:
        number[sentence, slot] = len(nodes[sentence])
        nodes[sentence].append((slot, label, probability))
    for sentence, source, target, label, probability in edge_rows:
        edge = Edge(number[sentence, source], vocab.edge_label(label), number[sentence, target])
        edges[sentence].append((edge, probability))
    return [
        Decoded(
            Graph(
                tuple(vocab.node_label(label) for _, label, _ in its_nodes),
                tuple(edge for edge, _ in its_edges),
                tuple(slot for slot, _, _ in its_nodes),
            ),
            tuple(probability for *_, probability in its_nodes),
            tuple(probability for _, probability in its_edges),
            whole,
        )
        for its_nodes, its_edges, whole in zip(nodes, edges, wholes, strict=True)
    ]
