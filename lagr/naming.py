"""Which name each variable of a parse has, where alignments take variables for alike.

Every slot says by itself how likely it is ?x0 and how likely ?x1. Together they have to fit:
- No name comes twice.
- Forms often number their variables as they come: the first that a form mentions is ?x0, the next ?x1, and no line has
  ?x1 before ?x0. If nearly all of the training forms do, a parse does too: of the namings that are in such an order, it
  has the likeliest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, zip_longest

import torch
from torch import Tensor

from lagr.decode import Decoded
from lagr.errors import FormError
from lagr.graph import Graph
from lagr.matching import best_assignment
from lagr.model import GraphDistribution
from lagr.variables import is_variable, mentioned
from lagr.vocab import Vocabulary

NEARLY_ALL = 0.99  # of the training forms with several variables: the share that must have an order, to be kept to
MOST_VARIABLES = 6  # whose namings, n! or more, are gone through


def order_of_names(forms: Iterable[str]) -> tuple[str, ...]:
    """The name of the variable that forms mention first, second, …; nothing if they have no such order.

    >>> order_of_names(["?x0 is a film", "?x0 influenced ?x1", "?x0 is a ?x1"])
    ('?x0', '?x1')
    >>> order_of_names(["?film has ?actor", "?actor is in ?film"])
    ()
    """
    several = [form for form in forms if len(mentioned(form)) > 1]
    order: list[str] = []
    for place in zip_longest(*map(mentioned, several)):  # the first of every form, then the second, …
        if new := Counter(name for name in place if name and name not in order):
            order.append(new.most_common(1)[0][0])
    kept = sum(is_in_order(form, order) for form in several)
    return tuple(order) if several and kept >= NEARLY_ALL * len(several) else ()


def is_in_order(form: str, names: Sequence[str]) -> bool:
    """Whether the form mentions the first of these names first, then the second, …, and keeps to that in every line."""
    here = mentioned(form)
    if here != tuple(names[: len(here)]):
        return False
    return len(here) < 2 or all(
        line == tuple(name for name in here if name in line) for line in map(mentioned, form.split("\n"))
    )


@dataclass(frozen=True)
class Names:
    """What a parser knows of names: which labels are, their order, and how forms are written."""

    labels: tuple[int, ...]
    vocab: Vocabulary
    write: Callable[[Graph], str] | None = None

    def are_in_order(self, graph: Graph) -> bool:
        """Whether the form mentions names in their order, if they have one and there is a form."""
        variables = self._variables(graph)
        if not self.vocab.names or self.write is None or not 0 < len(variables) <= MOST_VARIABLES:
            return True
        if self._taken(graph).intersection(graph.nodes[node] for node in variables):
            return False
        try:
            return is_in_order(self.write(graph), self.vocab.names)
        except FormError:
            return True

    def likeliest_in_order(self, graph: Graph, log_probs: Tensor) -> dict[int, int]:
        """The likeliest names that are in order: slots and their labels; nothing if none are. log_probs (M, V)"""
        assert graph.slots is not None
        variables = self._variables(graph)
        slots = [graph.slots[node] for node in variables]
        numbers, taken = self.vocab.node_numbers, self._taken(graph)
        names = [name for name in self.vocab.names if name in numbers and name not in taken][: len(variables)]
        labels = [numbers[name] for name in names]
        likely = log_probs[slots][:, labels].tolist()
        ways = permutations(range(len(names)), len(variables))
        for way in sorted(ways, key=lambda way: -sum(row[k] for row, k in zip(likely, way, strict=True))):
            nodes = list(graph.nodes)
            for node, k in zip(variables, way, strict=True):
                nodes[node] = names[k]
            if self.are_in_order(graph.with_labels(nodes)):
                return {slot: labels[k] for slot, k in zip(slots, way, strict=True)}
        return {}

    def _taken(self, graph: Graph) -> set[str]:
        """Names that are part of another label, as ?x0 is of select_?x0. A node without edges is in no form."""
        joined = {graph.nodes[node] for edge in graph.edges for node in (edge.source, edge.target)}
        return {name for label in joined if not is_variable(label) for name in mentioned(label)}

    def _variables(self, graph: Graph) -> list[int]:
        numbers = self.vocab.node_numbers
        return [node for node, label in enumerate(graph.nodes) if numbers.get(label) in self.labels]


def shared_out(
    dist: GraphDistribution, decode: Callable[[GraphDistribution], list[Decoded]], names: Names | None
) -> tuple[GraphDistribution, list[Decoded]]:
    """The distribution in which the likeliest labels are names that fit together, and what is decoded from it."""
    if names is None:
        return dist, decode(dist)
    once = with_names_once(dist, names.labels)
    found, log_probs = decode(once), once.node_log_probs
    again = False
    for b, one in enumerate(found):
        if not names.are_in_order(one.graph) and (
            better := names.likeliest_in_order(one.graph, dist.node_log_probs[b])
        ):
            slots, labels = (torch.tensor(list(x), device=log_probs.device) for x in (better, better.values()))
            give(log_probs, b, slots, labels)
            again = True
    return once, decode(once) if again else found


def with_names_once(dist: GraphDistribution, names: Sequence[int]) -> GraphDistribution:
    """The distribution in which no two slots of a sentence have the same of these labels for their likeliest.

    Where two would, all slots that have one of them share the names out as is likeliest together. Where there are more
    slots than names, all stays.
    """
    log_probs = dist.node_log_probs.clone()
    labels = torch.tensor(names, device=log_probs.device)
    best = log_probs.argmax(-1) * dist.slots
    named = best[..., None] == labels  # (B, M, names)
    for b in (named.sum(1) > 1).any(1).nonzero()[:, 0].tolist():
        at = named[b].any(1).nonzero()[:, 0]
        if len(at) > len(labels):
            continue
        shares = log_probs[b, at][:, labels]
        sizes = torch.tensor([len(at)]), torch.tensor([len(labels)])
        mine = best_assignment(shares.float().cpu()[None, None], *sizes)[0, 0].to(labels.device)
        give(log_probs, b, at, labels[mine])
    return replace(dist, node_log_probs=log_probs)


def give(log_probs: Tensor, b: int, slots: Tensor, labels: Tensor) -> None:
    """Makes each label the likeliest of its slot: it changes its probability with the one that was."""
    best = log_probs[b, slots].max(1)
    log_probs[b, slots, best.indices] = log_probs[b, slots, labels]
    log_probs[b, slots, labels] = best.values
