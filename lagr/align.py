"""The latent alignment: which slot each node of a graph belongs to. Read this third.

alignment[b, j] is the slot of node j of sentence b. The likeliest alignment,

    â = argmax_a  Σ_j log p(z_{a_j} = s_j | x) + Σ_j Σ_k log p(ξ_{a_j a_k} = e_jk | x),

has no known exact algorithm, but without the edge term it is an assignment problem. So K such problems are solved, each
with other noise on the node term, and the candidate with the best full score is kept. Paper: section 2.2, algorithm 1.

All scores are *gains* over an empty graph: slots and pairs that hold nothing hold null, whatever the alignment, so
    log p(graph placed by a | x) = log p(all null | x) + Σ_j node gain + Σ_edges edge gain
and only J nodes and the graph's edges ever need to be looked at, not M slots and M·M pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lagr.chance import normal, uniform
from lagr.matching import best_assignment
from lagr.model import NULL, GraphDistribution, GraphLabels

NOISE_SITE = 1_000  # apart from the sites of dropout
FORBIDDEN = -1e5  # the gain of a slot that a node can't take: far below any other, whatever the noise


@dataclass(frozen=True)
class Target:
    """Graphs to be placed: node labels and edges between node numbers. Label null marks padding."""

    nodes: Tensor  # (B, J)
    sources: Tensor  # (B, G), the node an edge leaves
    labels: Tensor  # (B, G)
    targets: Tensor  # (B, G), the node it enters
    valencies: Tensor | None = None  # (B, J, 2), which edge labels leave a node and enter it, if a model says that too
    allowed: Tensor | None = None  # (B, J, M), the slots that a node may take: of the words that it copies; None: all
    alike: Tensor | None = None  # (B, P, 2), pairs of nodes of equal label, in order; (0, 0) is none


def place(target: Target, alignment: Tensor, slots: int) -> GraphLabels:
    """The complete labelled graph that has node j in slot alignment[j] and null everywhere else."""
    B = target.nodes.shape[0]
    # Padding is written to one place past the end, which is cut off.
    at = torch.where(target.nodes != NULL, alignment, slots)
    nodes = target.nodes.new_zeros(B, slots + 1).scatter_(1, at, target.nodes)[:, :slots]
    pair = at.gather(1, target.sources) * slots + at.gather(1, target.targets)
    pair = torch.where(target.labels != NULL, pair, slots * slots)
    edges = target.labels.new_zeros(B, slots * slots + 1).scatter_(1, pair, target.labels)[:, :-1]
    valencies = target.valencies
    if valencies is not None:
        empty = valencies.new_zeros(B, slots + 1, 2)
        valencies = empty.scatter_(1, at[..., None].expand(-1, -1, 2), valencies)[:, :slots]
    return GraphLabels(nodes, edges.view(B, slots, slots), valencies)


def with_choices(log_probs: Tensor, choices: Sequence[Tensor]) -> Tensor:
    """A node that may have any of some labels has them with the sum of their probabilities. (B, M, V) → more labels"""
    sums = [log_probs.index_select(2, labels).logsumexp(2, keepdim=True) for labels in choices]
    return torch.cat([log_probs, *sums], dim=2) if sums else log_probs


def node_gain(dist: GraphDistribution, target: Target) -> Tensor:
    """What node j gains by taking slot m: log p(z_m = s_j | x) − log p(z_m = null | x).   (B, J, M)

    Slots left over hold null, so the best assignment of J nodes to M slots by gain is the best of the square
    problem in which the nulls are assigned too. Paper: section 2.2, the node term.
    """
    log_probs = dist.node_log_probs.transpose(1, 2)  # (B, V, M)
    of_label = log_probs.gather(1, target.nodes[..., None].expand(-1, -1, log_probs.shape[2]))
    gain = of_label - log_probs[:, NULL, None]
    if target.allowed is not None:
        gain = gain.masked_fill(~target.allowed, FORBIDDEN)
    return gain


def valency_gain(dist: GraphDistribution, target: Target) -> Tensor:
    """What node j's valencies gain in slot m, over those of nothing.   (B, J, M)"""
    assert dist.valency_log_probs is not None and target.valencies is not None
    log_probs = dist.valency_log_probs.permute(0, 2, 3, 1)  # (B, 2, valencies, M)
    chosen = target.valencies.transpose(1, 2)[..., None].expand(-1, -1, -1, log_probs.shape[3])
    return (log_probs.gather(2, chosen) - log_probs[:, :, :1]).sum(1)


def edge_gain(dist: GraphDistribution, target: Target, candidates: Tensor) -> Tensor:
    """What a graph's edges gain under each candidate: Σ log p(ξ = e | x) − log p(ξ = null | x).   (B, K)"""
    B, K, _ = candidates.shape

    def slot_of(node: Tensor) -> Tensor:
        return candidates.gather(2, node[:, None].expand(B, K, -1))

    sentence = torch.arange(B, device=candidates.device)[:, None, None]
    pair = sentence, slot_of(target.sources), slot_of(target.targets)  # (B, K, G) each
    gain = dist.edge_log_probs[(*pair, target.labels[:, None])] - dist.edge_log_probs[(*pair, NULL)]
    return (gain * (target.labels != NULL)[:, None]).sum(2)


def score(dist: GraphDistribution, target: Target, candidates: Tensor) -> Tensor:
    """log p(graph placed by a | x) − log p(all null | x) of every candidate, node and edge terms.   (B, K)"""
    gain = node_gain(dist, target)
    if dist.valency_log_probs is not None and target.valencies is not None:
        gain = gain + valency_gain(dist, target)
    nodes = gain.gather(2, candidates.transpose(1, 2))  # (B, J, K)
    nodes = (nodes * (target.nodes != NULL)[..., None]).sum(1)
    return nodes + edge_gain(dist, target, candidates)


def noisy_candidates(
    dist: GraphDistribution,
    target: Target,
    candidates: int,
    noise: float,
    keys: Tensor | None = None,
    noise_shape: str = "normal",
) -> Tensor:
    """K alignments, each exact for the node gains plus its own noise.   (B, K, J)

    Without noise nothing but rounding would tell nodes of equal label apart: they take their slots in order.
    noise: σ, of ε ~ N(0, σ) as the paper has it, or of ε uniform in [0, σ) as in the code that it was run with.
    keys: what the noise is drawn from, one for each of S equal parts of the batch.
    """
    gain = node_gain(dist, target)[:, None].expand(-1, candidates, -1, -1)
    if noise > 0:
        keys = gain.new_zeros(1, dtype=torch.int32) if keys is None else keys
        draw = {"normal": normal, "uniform": uniform}[noise_shape]
        gain = gain + noise * draw((len(keys), gain.numel() // len(keys)), keys, site=NOISE_SITE).view(gain.shape)
    found = best_assignment(gain, (target.nodes != NULL).sum(1), dist.slots.sum(1))
    return found if noise > 0 else in_order(target, found)


def in_order(target: Target, candidates: Tensor) -> Tensor:
    """The candidates with the slots of nodes of equal label in the order of these nodes.   (B, K, J)

    It makes no difference to the node term. Settled another way at every step, the edges of such nodes could not be
    learned.
    """
    for pair in () if target.alike is None else target.alike.unbind(1):  # (B, 2); one after another, they sort
        both = pair[:, None].expand(-1, candidates.shape[1], -1)
        candidates = candidates.scatter(2, both, candidates.gather(2, both).sort(2).values)
    return candidates


@torch.no_grad()
def infer_alignment(
    dist: GraphDistribution,
    target: Target,
    candidates: int,
    noise: float,
    keys: Tensor | None = None,
    previous: Tensor | None = None,
    noise_shape: str = "normal",
    swaps: int = 0,
) -> Tensor:
    """The candidate with the highest full likelihood, of K noisy ones and the previous alignment.   (B, J)

    previous: the alignment used last time, candidate K + 1; a row that starts with −1 has none. swaps: how often one
    pair of nodes of equal label, or two at once, may then change places, where that is likelier. No gradient flows
    through an alignment.
    """
    tried = noisy_candidates(dist, target, candidates, noise, keys, noise_shape)
    if previous is not None:
        tried = torch.cat([tried, previous.clamp(min=0)[:, None]], dim=1)
    scores = score(dist, target, tried)
    if previous is not None:
        unknown = (previous[:, :1] < 0) & (torch.arange(tried.shape[1], device=tried.device) == candidates)
        scores = scores.masked_fill(unknown, -torch.inf)
    best = _likeliest(tried, scores)
    for _ in range(swaps if target.alike is not None else 0):
        tried = torch.cat([best[:, None], *swapped(target, best)], dim=1)
        best = _likeliest(tried, score(dist, target, tried))
    return best


def swapped(target: Target, alignment: Tensor) -> tuple[Tensor, Tensor]:
    """The alignments in which one pair of nodes of equal label has changed places, and then another one too.

    The node term can't tell such nodes apart: edges can. A chain of equal labels ("'s sibling 's sibling") that lies
    the wrong way round is turned by two pairs, of things and of relations; either alone makes it worse.
    (B, J) → (B, P, J), (B, P·(P − 1) / 2, J)
    """
    assert target.alike is not None
    P = target.alike.shape[1]
    once = _exchanged(alignment[:, None].expand(-1, P, -1), target.alike)
    first, second = torch.triu_indices(P, P, offset=1, device=alignment.device)
    return once, _exchanged(once[:, first], target.alike[:, second])


def _exchanged(alignments: Tensor, pairs: Tensor) -> Tensor:
    """Each alignment with its pair of nodes in each other's place.   (B, K, J), (B, K, 2) → (B, K, J)"""
    return alignments.scatter(2, pairs, alignments.gather(2, pairs).flip(2))


def _likeliest(tried: Tensor, scores: Tensor) -> Tensor:
    """(B, K, J), (B, K) → (B, J)"""
    best = scores.argmax(1)[:, None, None].expand(-1, 1, tried.shape[2])
    return tried.gather(1, best).squeeze(1)
