"""The model, the alignment and the loss, against brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lagr import config
from lagr.align import Target, infer_alignment, noisy_candidates, place, score, swapped
from lagr.batch import pack, pairs_alike
from lagr.datasets import Example
from lagr.decode import decode
from lagr.encoders import LSTMLayer, Transformer, rotated
from lagr.graph import Edge, Graph
from lagr.loss import strong_loss, weak_loss
from lagr.model import NULL, GraphDistribution, GraphLabels, LAGr
from lagr.parser import build
from lagr.twins import folded, without_twins
from lagr.vocab import Vocabulary


def random_distribution(
    slots: list[int], V: int = 4, E: int = 3, seed: int = 0, scale: float = 2.0, valency: int = 0
) -> GraphDistribution:
    generator = torch.Generator().manual_seed(seed)
    B, M = len(slots), max(slots)
    present = torch.arange(M) < torch.tensor(slots)[:, None]
    nodes, edges = (torch.randn(*size, generator=generator) * scale for size in ((B, M, V), (B, M, M, E)))
    dist = GraphDistribution.from_logits(nodes, edges, present)
    if not valency:
        return dist
    numbers = (torch.randn(B, M, 2, valency, generator=generator) * scale).log_softmax(-1)
    return replace(dist, valency_log_probs=numbers)


def random_target(nodes: list[int], V: int = 4, E: int = 3, seed: int = 0, valency: int = 0) -> Target:
    """For every sentence that many nodes, with edges on about half of the pairs, and any of so many valencies."""
    generator = torch.Generator().manual_seed(seed)
    B, J = len(nodes), max(1, *nodes)
    labels = torch.zeros(B, J, dtype=torch.long)
    rows: list[list[tuple[int, int, int]]] = []
    for b, count in enumerate(nodes):
        labels[b, :count] = torch.randint(1, V, (count,), generator=generator)
        pairs = [(s, t) for s in range(count) for t in range(count) if torch.rand((), generator=generator) < 0.5]
        rows.append([(s, int(torch.randint(1, E, (), generator=generator)), t) for s, t in pairs])
    G = max(1, *map(len, rows))
    edges = torch.tensor([row + [(0, NULL, 0)] * (G - len(row)) for row in rows])
    valencies = torch.randint(valency, (B, J, 2), generator=generator) if valency else None
    return Target(labels, edges[..., 0], edges[..., 1], edges[..., 2], valencies)


def all_alignments(nodes: int, slots: int) -> Tensor:
    return torch.tensor(list(permutations(range(slots), nodes)))


def log_prob_by_loops(dist: GraphDistribution, labels: GraphLabels, b: int) -> float:
    total, M = 0.0, int(dist.slots[b].sum())
    for j in range(M):
        total += float(dist.node_log_probs[b, j, labels.nodes[b, j]])
        for k in range(M):
            total += float(dist.edge_log_probs[b, j, k, labels.edges[b, j, k]])
    return total


# GraphDistribution


def test_log_prob_is_the_sum_over_all_slots_and_pairs_that_exist() -> None:
    dist = random_distribution([4, 2])
    labels = GraphLabels(torch.randint(4, (2, 4)), torch.randint(3, (2, 4, 4)))
    expected = [log_prob_by_loops(dist, labels, b) for b in range(2)]
    torch.testing.assert_close(dist.log_prob(labels), torch.tensor(expected))


def test_valencies_count_in_the_log_prob() -> None:
    dist = random_distribution([4, 2], valency=5)
    labels = GraphLabels(torch.randint(4, (2, 4)), torch.randint(3, (2, 4, 4)), torch.randint(5, (2, 4, 2)))
    expected = []
    for b, n in enumerate((4, 2)):
        total = log_prob_by_loops(dist, labels, b)
        for slot, way in itertools.product(range(n), (0, 1)):
            total += float(dist.valency_log_probs[b, slot, way, labels.valencies[b, slot, way]])
        expected.append(total)
    torch.testing.assert_close(dist.log_prob(labels), torch.tensor(expected))


def test_argmax_is_the_likeliest_of_all_graphs() -> None:
    dist = random_distribution([2], V=2, E=2)
    best, everything = dist.log_prob(dist.argmax()), []
    for code in range(2**6):
        bits = [(code >> i) & 1 for i in range(6)]
        everything.append(dist.log_prob(GraphLabels(torch.tensor([bits[:2]]), torch.tensor(bits[2:]).view(1, 2, 2))))
    assert best == torch.stack(everything).max()
    torch.testing.assert_close(torch.stack(everything).exp().sum(), torch.tensor(1.0))


# Model

KINDS = [(e, s, L) for e in ("transformer", "lstm") for s in ("shared", "separate") for L in (1, 2, 3)]


def small_model(encoder: str = "transformer", encoders: str = "separate", graph_layers: int = 1, **beyond: Any) -> LAGr:
    torch.manual_seed(1)
    return LAGr(
        9, 5, 3, encoder=encoder, encoders=encoders, graph_layers=graph_layers, width=16, encoder_layers=2, **beyond
    ).eval()


def test_rotated_products_depend_on_distances_alone() -> None:
    query, key = torch.randn(2, 8)
    near = rotated(query, torch.tensor(3)) @ rotated(key, torch.tensor(1))
    far = rotated(query, torch.tensor(13)) @ rotated(key, torch.tensor(11))
    other = rotated(query, torch.tensor(3)) @ rotated(key, torch.tensor(2))
    torch.testing.assert_close(near, far)
    assert abs(near - other) > 1e-3


@torch.no_grad()
def test_an_lstm_layer_says_what_torchs_does() -> None:
    layer, other = LSTMLayer(1, 16), torch.nn.LSTM(16, 8, batch_first=True, bidirectional=True)
    for number, end in enumerate(("l0", "l0_reverse")):
        inputs, recurrent = layer.inputs, layer.recurrent
        getattr(other, f"weight_ih_{end}").copy_(inputs.weight[0].T.chunk(2)[number])
        getattr(other, f"bias_ih_{end}").copy_(inputs.bias[0, 0].chunk(2)[number])  # type: ignore[index]
        getattr(other, f"weight_hh_{end}").copy_(recurrent.weight[number].T)
        getattr(other, f"bias_hh_{end}").copy_(recurrent.bias[number, 0])  # type: ignore[index]
    x, lengths = torch.randn(3, 6, 16), torch.tensor([6, 3, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(other(packed)[0], batch_first=True)
    found = layer(x[None], lengths[None])[0][0] * (torch.arange(6) < lengths[:, None])[..., None]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("beyond", [{}, {"positions": "rotary", "valencies": (5, 7)}, {"twins": True}])
@pytest.mark.parametrize(("encoder", "encoders", "graph_layers"), KINDS)
def test_one_sentence_alone_is_the_same_in_a_batch_and_padding_changes_nothing(
    encoder: str, encoders: str, graph_layers: int, beyond: dict[str, Any]
) -> None:
    model = small_model(encoder, encoders, graph_layers, **beyond)
    sentences, lengths = torch.randint(2, 9, (3, 6)), torch.tensor([6, 3, 1])
    together = model(sentences[None], lengths[None])
    for b, n in enumerate(lengths.tolist()):
        for padding in (0, 4):
            tokens = torch.nn.functional.pad(sentences[b : b + 1, :n], (0, padding), value=7)  # any word as padding
            alone, m = model(tokens[None], lengths[None, b : b + 1]), n * graph_layers
            torch.testing.assert_close(alone.node_log_probs[0, :m], together.node_log_probs[b, :m], atol=1e-5, rtol=0)
            torch.testing.assert_close(
                alone.edge_log_probs[0, :m, :m], together.edge_log_probs[b, :m, :m], atol=1e-5, rtol=0
            )
            assert int(alone.slots.sum()) == m
            if together.valency_log_probs is not None:
                wanted = together.valency_log_probs[b, :m]
                torch.testing.assert_close(alone.valency_log_probs[0, :m], wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize(("encoder", "encoders", "graph_layers"), KINDS)
def test_every_parameter_learns(encoder: str, encoders: str, graph_layers: int, twins: bool) -> None:
    model = small_model(encoder, encoders, graph_layers, twins=twins).train()
    tokens = torch.randint(2, 9, (4, 5))
    target = random_target([3, 2, 3, 1], V=5)
    dist = model(tokens[None], torch.tensor([[5, 3, 4, 1]]), keys=torch.tensor([3], dtype=torch.int32))
    losses, _ = weak_loss(dist, target, 2, 1.0)
    losses.mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_the_smaller_what_layers_add_at_first_the_less_a_slot_says_of_other_words() -> None:
    one, other = torch.tensor([[[2, 3, 4, 5]]]), torch.tensor([[[2, 3, 4, 6]]])
    changes = []
    for residual in (0.0, 0.1, 1.0):
        torch.manual_seed(0)
        model = LAGr(9, 5, 3, width=32, encoder_layers=3, residual=residual)
        first, second = (model(tokens, torch.tensor([[4]])).node_log_probs[0] for tokens in (one, other))
        changes.append((first[:3] - second[:3]).abs().max().item())
    assert changes[0] == 0 < changes[1] < changes[2] / 3
    built = build(
        config.override(config.load("quickstart"), [("model", "residual", 0.0)]), Vocabulary(("a",), ("b",), ())
    )
    assert isinstance(built.encode, Transformer) and not built.encode.layers[0].attended.weight.any()


def test_the_edge_scorer_is_what_its_formula_says() -> None:
    model = small_model(graph_layers=2)
    tokens, lengths = torch.randint(2, 9, (1, 1, 3)), torch.tensor([[3]])
    embedded = model.embed(tokens, None).expand(2, -1, -1, -1)
    hidden = model.encode(embedded, lengths.expand(2, 1), None)[1, 0]  # the second encoder is for edges
    width, E = model.edge_width, 3
    logits = torch.zeros(6, 6, E)
    for source in range(6):
        for target in range(6):
            for label in range(E):
                rows = []
                for affine, slot in ((model.edge_queries, source), (model.edge_keys, target)):
                    token, layer = slot // 2, slot % 2
                    at = (layer * E + label) * width
                    rows.append(
                        hidden[token] @ affine.weight[0, :, at : at + width] + affine.bias[0, 0, at : at + width]
                    )
                logits[source, target, label] = rows[0] @ rows[1]
    torch.testing.assert_close(model(tokens, lengths).edge_log_probs[0], logits.log_softmax(-1))


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_node_logits_are_not_rounded_to_bf16(weights: torch.dtype) -> None:
    """bf16 keeps eight bits: logits of 16 and more would come in steps of an eighth. docs/mcd1.md has what that does."""
    torch.manual_seed(0)
    model = LAGr(9, 40, 3, width=64, encoders="shared", graph_layers=2)
    for affine in (model.node_scorer, model.edge_queries, model.edge_keys):
        affine.weight.data = (20 * affine.weight.data).to(weights)
    encoded, lengths = torch.randn(1, 3, 5, 64).to(weights), torch.full((1, 3), 5)
    found = model.score(encoded, encoded, lengths)[0]
    assert model.node_scorer.bias is not None
    exact = encoded[0].double() @ model.node_scorer.weight[0].double() + model.node_scorer.bias[0].double()
    exact = exact.view(3, 10, -1)[..., :40].log_softmax(-1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, atol=1e-4, rtol=0)


def test_an_edges_width_is_the_models_over_the_labels_and_a_multiple_of_eight_unless_told() -> None:
    assert LAGr(5, 4, 10, width=512, encoder_layers=1).edge_width == 56
    assert LAGr(5, 4, 10, width=512, encoder_layers=1, edge_width=64).edge_width == 64


# Alignment


def test_place_puts_every_node_and_edge_in_its_slot() -> None:
    target = Target(
        torch.tensor([[2, 3, NULL]]), torch.tensor([[0, 0]]), torch.tensor([[1, NULL]]), torch.tensor([[1, 0]])
    )
    labels = place(target, torch.tensor([[3, 0, 0]]), 4)
    assert labels.nodes.tolist() == [[3, 0, 0, 2]]  # padding overwrites nothing, not even in slot 0
    expected = torch.zeros(4, 4, dtype=torch.long)
    expected[3, 0] = 1  # from the source's slot to the target's
    assert labels.edges[0].tolist() == expected.tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)).filter(lambda p: p[0] <= p[1]), min_size=1, max_size=3),
       st.integers(0, 1000), st.sampled_from([0, 1, 3]))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_score_of_an_alignment_is_what_its_graph_gains_over_the_empty_graph(
    sizes: list[tuple[int, int]], seed: int, valency: int
) -> None:
    nodes, slots = [list(column) for column in zip(*sizes, strict=True)]
    dist = random_distribution(slots, seed=seed, valency=valency)
    target = random_target(nodes, seed=seed, valency=valency)
    alignment = torch.zeros_like(target.nodes)
    for b, (J, M) in enumerate(sizes):
        alignment[b, :J] = torch.randperm(M)[:J]
    M = dist.slots.shape[1]
    B = len(sizes)
    empty = GraphLabels(*(torch.zeros(B, M, *rest, dtype=torch.long) for rest in ((), (M,), (2,))))
    gained = dist.log_prob(place(target, alignment, M)) - dist.log_prob(empty)
    torch.testing.assert_close(score(dist, target, alignment[:, None])[:, 0], gained, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("nodes", "slots"), [(1, 1), (2, 4), (3, 3), (4, 5), (3, 6)])
def test_without_noise_the_candidate_is_the_best_of_all_alignments_for_the_nodes(
    nodes: int, slots: int, seed: int
) -> None:
    dist, target = random_distribution([slots], seed=seed), random_target([nodes], seed=seed)
    no_edges = Target(target.nodes, target.sources, torch.zeros_like(target.labels), target.targets)
    found = noisy_candidates(dist, target, 1, 0.0, None)
    best = score(dist, no_edges, all_alignments(nodes, slots)[None]).max()
    torch.testing.assert_close(score(dist, no_edges, found).squeeze(), best)


@pytest.mark.parametrize("seed", range(5))
def test_many_noisy_candidates_find_the_best_of_all_alignments(seed: int) -> None:
    dist, target = random_distribution([4], seed=seed, scale=1.0), random_target([3], seed=seed)
    found = infer_alignment(dist, target, 400, 3.0, torch.tensor([seed], dtype=torch.int32))
    best = score(dist, target, all_alignments(3, 4)[None]).max()
    torch.testing.assert_close(score(dist, target, found[:, None]).squeeze(), best)


def test_the_kept_candidate_is_the_best_by_nodes_and_edges_of_those_tried() -> None:
    dist, target = random_distribution([5, 4], seed=3), random_target([3, 4], seed=3)
    tried = noisy_candidates(dist, target, 6, 2.0, torch.tensor([7], dtype=torch.int32))
    kept = infer_alignment(dist, target, 6, 2.0, torch.tensor([7], dtype=torch.int32))
    torch.testing.assert_close(score(dist, target, kept[:, None])[:, 0], score(dist, target, tried).amax(1))


def test_the_previous_alignment_is_one_more_candidate() -> None:
    dist, target = random_distribution([4, 4], seed=1), random_target([3, 3], seed=1)
    everything = all_alignments(3, 4)[None].expand(2, -1, -1)
    best = everything[torch.arange(2), score(dist, target, everything).argmax(1)]
    assert (
        infer_alignment(dist, target, 1, 50.0, torch.tensor([7], dtype=torch.int32), previous=best).tolist()
        == best.tolist()
    )
    unknown = torch.tensor([[-1, -1, -1], best[1].tolist()])
    alone = infer_alignment(dist, target, 1, 50.0, torch.tensor([7], dtype=torch.int32))
    mixed = infer_alignment(dist, target, 1, 50.0, torch.tensor([7], dtype=torch.int32), previous=unknown)
    assert mixed[0].tolist() == alone[0].tolist() and mixed[1].tolist() == best[1].tolist()


def test_no_gradient_flows_through_an_alignment() -> None:
    logits = torch.randn(1, 3, 4, requires_grad=True)
    dist = GraphDistribution.from_logits(logits, torch.randn(1, 3, 3, 3), torch.ones(1, 3, dtype=torch.bool))
    assert not infer_alignment(dist, random_target([2]), 2, 1.0).requires_grad


# Loss


@pytest.mark.parametrize("graph_layers", [1, 2])
def test_weak_loss_with_the_gold_alignment_is_the_strong_loss(graph_layers: int) -> None:
    """The gold alignment is injected as candidate K + 1; noise makes the others worse, and one of them is checked to be."""
    examples = [
        Example(("a", "b", "c"), Graph(("p", "q", "p"), (Edge(0, "x", 1), Edge(1, "y", 2)), slots=(0, 1, 2))),
        Example(("b", "a"), Graph(("q",), slots=(1,))),
    ]
    data = pack(examples, Vocabulary.of(examples), graph_layers)
    batch = data.batch
    slots = 3 * graph_layers
    gold = place(batch.target, batch.alignment, slots)
    sharp = [5.0 * torch.nn.functional.one_hot(t, n).float() for t, n in ((gold.nodes, 3), (gold.edges, 3))]
    sharp = [logits + 0.1 * torch.randn(logits.shape) for logits in sharp]
    present = torch.arange(slots) < graph_layers * batch.lengths[:, None]
    dist = GraphDistribution.from_logits(*sharp, present)
    keys = torch.tensor([5], dtype=torch.int32)
    strong = strong_loss(dist, batch.target, batch.alignment)
    noisy, _ = weak_loss(dist, batch.target, 1, 100.0, keys)
    weak, used = weak_loss(dist, batch.target, 1, 100.0, keys, previous=batch.alignment)
    assert noisy.sum() > strong.sum()
    assert weak.tolist() == strong.tolist() and used[0].tolist() == batch.alignment[0].tolist()


def test_the_loss_is_the_negative_log_likelihood() -> None:
    dist, target = random_distribution([3, 4]), random_target([2, 3])
    alignment = torch.tensor([[2, 0, 0], [1, 3, 0]])
    labels = place(target, alignment, 4)
    expected = [-log_prob_by_loops(dist, labels, b) for b in range(2)]
    assert strong_loss(dist, target, alignment).tolist() == pytest.approx(expected, rel=1e-5)


# Beyond the paper: nodes of equal label change places, twins are folded, edges don't see names


def with_alike(target: Target) -> Target:
    pairs = [
        [(i, j) for i, j in itertools.combinations(range(len(row)), 2) if row[i] == row[j] != NULL]
        for row in target.nodes.tolist()
    ]
    most = max(1, *map(len, pairs))
    return replace(target, alike=torch.tensor([row + [(0, 0)] * (most - len(row)) for row in pairs]))


@pytest.mark.parametrize("seed", range(6))
def test_without_noise_nodes_of_equal_label_take_their_slots_in_order(seed: int) -> None:
    dist, target = random_distribution([9, 6], V=3, seed=seed), with_alike(random_target([7, 4], V=3, seed=seed))
    alone = noisy_candidates(dist, replace(target, alike=None), 1, 0.0)
    found = noisy_candidates(dist, target, 1, 0.0)
    for slots, before, labels in zip(found[:, 0].tolist(), alone[:, 0].tolist(), target.nodes.tolist(), strict=True):
        for label in (1, 2):
            of_label, of_label_before = (
                [slot for slot, its_label in zip(all_slots, labels, strict=True) if its_label == label]
                for all_slots in (slots, before)
            )
            assert of_label == sorted(of_label_before)


def test_which_of_two_equal_nodes_comes_first_depends_on_their_edges_alone() -> None:
    edges = [Edge(0, "agent", 1), Edge(1, "theme", 2), Edge(3, "theme", 4), Edge(5, "theme", 6), Edge(6, "agent", 3)]
    graph = Graph(("x", "saw", "M2", "saw", "M0", "saw", "M1"), tuple(edges))
    assert pairs_alike(graph) == [(3, 1), (3, 5), (1, 5)]  # seen by M1, by x, by nobody
    for order in permutations(range(7)):
        assert [(order[a], order[b]) for a, b in pairs_alike(graph.reordered(order))] == pairs_alike(graph)


@pytest.mark.parametrize("seed", range(6))
def test_swaps_end_where_no_other_swap_is_likelier(seed: int) -> None:
    dist, target = random_distribution([4], V=2, seed=seed), with_alike(random_target([3], V=2, seed=seed))
    alone, found = infer_alignment(dist, target, 1, 0.0), infer_alignment(dist, target, 1, 0.0, swaps=6)
    assert set(found[0].tolist()) == set(alone[0].tolist())
    reached = score(dist, target, found[:, None])
    assert reached >= score(dist, target, alone[:, None])
    assert all((reached >= score(dist, target, others)).all() for others in swapped(target, found))


def chain() -> tuple[GraphDistribution, Target, list[int]]:
    """x ─of→ sibling ─of→ y ─of→ sibling ─of→ z, a model that knows it, and is less sure of its direction; its slots."""
    places = [4, 3, 2, 1, 0]  # of x, sibling, y, sibling, z: not in the order of the nodes
    nodes, edges = torch.zeros(1, 5, 3), torch.zeros(1, 5, 5, 2)
    edges[..., 0] = 9.0
    for slot, label in zip(places, (1, 2, 1, 2, 1), strict=True):
        nodes[0, slot, label] = 9.0
    for source, target in pairwise(places):
        edges[0, source, target, 1], edges[0, target, source, 1] = 15.0, 14.0
    dist = GraphDistribution.from_logits(nodes, edges, torch.ones(1, 5, dtype=torch.bool))
    target = Target(
        torch.tensor([[1, 2, 1, 2, 1]]), *(torch.tensor([x]) for x in ([0, 1, 2, 3], [1] * 4, [1, 2, 3, 4]))
    )
    return dist, with_alike(target), places


def test_a_chain_that_lies_the_wrong_way_round_is_turned_by_two_pairs_at_once() -> None:
    dist, target, right = chain()
    wrong = torch.tensor([right[::-1]])
    assert infer_alignment(dist, target, 1, 0.0).equal(wrong)  # where the order of equal nodes puts it
    one_pair = score(dist, target, swapped(target, wrong)[0])
    assert (one_pair <= score(dist, target, wrong[:, None])).all()  # no step is a step up
    assert infer_alignment(dist, target, 1, 0.0, swaps=1).tolist() == [right]


@pytest.mark.parametrize("seed", range(10))
def test_two_swaps_find_the_best_order_of_three_nodes_and_two(seed: int) -> None:
    """Brute force: all orders of equal nodes among the slots that they have."""
    dist = random_distribution([7], V=3, seed=seed)
    target = replace(random_target([5], V=3, seed=seed), nodes=torch.tensor([[1, 1, 2, 1, 2]]))
    target = with_alike(target)
    (alone,) = infer_alignment(dist, target, 1, 0.0).tolist()
    every = []
    for ones, twos in itertools.product(permutations([0, 1, 3]), permutations([2, 4])):
        every.append([alone[{0: ones[0], 1: ones[1], 3: ones[2], 2: twos[0], 4: twos[1]}[node]] for node in range(5)])
    best = score(dist, target, torch.tensor([every])).max()
    found = infer_alignment(dist, target, 1, 0.0, swaps=2)
    assert score(dist, target, found[:, None]).item() == pytest.approx(best.item(), abs=1e-5)


def test_two_nodes_of_equal_label_get_the_slots_that_their_edges_want() -> None:
    moved = 0
    for seed in range(20):
        dist, target = random_distribution([3], V=2, seed=seed), with_alike(random_target([2], V=2, seed=seed))
        alone, found = infer_alignment(dist, target, 1, 0.0), infer_alignment(dist, target, 1, 0.0, swaps=1)
        assert score(dist, target, found[:, None]) == score(dist, target, torch.stack([alone, alone.flip(1)], 1)).max()
        moved += not found.equal(alone)
    assert 0 < moved < 20


def test_nodes_of_different_labels_never_change_places() -> None:
    dist = random_distribution([4], V=5)
    target = Target(torch.tensor([[1, 2, 3]]), *(torch.tensor([[0]]) for _ in range(3)), alike=torch.tensor([[[0, 0]]]))
    assert infer_alignment(dist, target, 1, 0.0, swaps=2).equal(infer_alignment(dist, target, 1, 0.0))


def test_packed_examples_name_the_pairs_of_nodes_of_equal_label() -> None:
    examples = [
        Example(("a", "b", "c"), Graph(("x", "y", "x"), (Edge(0, "e", 1),))),
        Example(("a", "b"), Graph(("x", "y"), ())),
    ]
    target = pack(examples, Vocabulary.of(examples), 1).batch.target
    assert target.alike is not None
    assert target.alike.tolist() == [[[2, 0]], [[0, 0]]]  # the one without edges is the first


def test_a_batch_has_as_many_pairs_as_its_bucket() -> None:
    graphs = [Graph(("x", "y")), Graph(("x", "y", "x")), Graph(("x", "x", "x", "y"))]
    examples = [Example(("a",) * (5 * n), graph) for n, graph in enumerate(graphs, start=1)]
    data = pack(examples, Vocabulary.of(examples), 1)
    taken = [data.take(torch.from_numpy(bucket.rows), bucket).target.alike for bucket in data.buckets]
    assert [0 if pairs is None else pairs.shape[1] for pairs in taken] == [0, 1, 3]


def list_of_three() -> Graph:
    """The first asks, 1 is asked of 2, 3 and 4; 5 has another edge of the same label."""
    edges = [Edge(0, "agent", 1), Edge(0, "agent", 5), *(Edge(1, "theme", node) for node in (2, 3, 4))]
    return Graph(tuple("abcdef"), tuple(edges))


def test_of_twins_the_first_keeps_its_edges_and_each_other_has_one_from_the_one_before() -> None:
    def fold(*places: int | None) -> tuple[set[Edge], set[tuple[int, int]]]:
        edges, twins = folded(list_of_three(), places, 3)
        return set(edges), set(twins)

    kept = {Edge(0, "agent", 1), Edge(0, "agent", 5)}
    assert fold(0, 1, 2, 4, 6, 7) == ({*kept, Edge(1, "theme", 2)}, {(2, 3), (3, 4)})
    assert fold(0, 1, 2, 4, 8, 9) == (
        {*kept, Edge(1, "theme", 2), Edge(1, "theme", 4)},
        {(2, 3)},
    )  # the last is too far
    assert fold(0, 1, 9, 7, 5, 2) == ({*kept, Edge(1, "theme", 4)}, {(4, 3), (3, 2)})  # in the order of the sentence
    assert fold(*[None] * 6) == (set(list_of_three().edges), set())


def test_what_is_said_of_the_first_is_said_of_all_twins() -> None:
    dist = random_distribution([5, 4], V=3, E=4, valency=5)
    dist.node_log_probs[..., NULL] = -9.0
    dist.node_log_probs[1, 2, NULL] = 9.0  # no node, so no twin
    twin = torch.full((2, 5, 5), -9.0)
    twin[0, 1, 2] = twin[0, 2, 4] = twin[0, 4, 3] = twin[1, 0, 2] = 0.0  # 3 is before 4 and can't be its next
    dist.edge_log_probs[..., -1] = twin
    found = without_twins(dist)
    plain = dist.edge_log_probs[..., :3].clone()
    plain[..., NULL] = torch.logaddexp(plain[..., NULL], twin)
    first = [0, 1, 1, 3, 1]
    assert found.edge_log_probs[0].equal(plain[0][first][:, first])
    assert found.edge_log_probs[1].equal(plain[1])
    assert dist.valency_log_probs is not None and found.valency_log_probs is not None
    assert found.valency_log_probs[0].equal(dist.valency_log_probs[0][first])
    assert found.valency_log_probs[1].equal(dist.valency_log_probs[1])


@pytest.mark.parametrize("encoders", ["shared", "separate"])
def test_whether_words_are_twins_is_seen_from_their_neighbours_alone(encoders: str) -> None:
    model = small_model(encoders=encoders, twins=True, positions="rotary")
    scores: list[Tensor] = []
    model.twin_scorer.register_forward_hook(lambda module, inputs, output: scores.append(output))
    for words in ([2, 3, 4, 5, 6, 7, 8], [8, 3, 4, 5, 6, 7, 8], [2, 3, 4, 5, 6, 7, 2], [2, 2, 2, 3, 4, 5, 6]):
        model(torch.tensor([[words]]), torch.tensor([[7]]))
    first, other_start, other_end, later = (found[0, 0] for found in scores)
    assert first[3:].equal(other_start[3:]) and not first[:3].allclose(other_start[:3])
    assert first[:4].equal(other_end[:4]) and not first[4:].allclose(other_end[4:])
    torch.testing.assert_close(first[2], later[4])  # the same neighbours, elsewhere


def test_an_edge_label_of_ones_own_may_be_called_anything() -> None:
    example = Example(tuple("abcde"), Graph(("a", "b", "c"), (Edge(0, "twin", 1), Edge(0, "twin", 2))))
    vocab = Vocabulary.of([example], copied=set("abc"), twins=3)
    (labels,) = pack([example], vocab, 1).batch.target.labels.tolist()
    assert sorted(labels) == [vocab.edge_numbers["twin"], vocab.twin]


def test_a_graph_that_was_folded_is_decoded_whole() -> None:
    example = Example(tuple("a b c , d and e f".split()), list_of_three())
    vocab = Vocabulary.of([example], copied=set("cdef"), twins=3)
    batch = pack([example], vocab, 1).batch
    assert sorted(batch.target.labels[0].tolist()) == [1, 1, 2, vocab.twin, vocab.twin]
    slots = torch.tensor([[example.tokens.index(node) for node in example.graph.nodes]])
    labels = place(batch.target, slots, len(example.tokens))
    sizes = vocab.sizes
    dist = GraphDistribution.from_logits(
        9.0 * torch.nn.functional.one_hot(labels.nodes, sizes[1]),
        9.0 * torch.nn.functional.one_hot(labels.edges, sizes[2]),
        torch.ones(1, len(example.tokens), dtype=torch.bool),
    )
    assert decode(without_twins(dist), vocab, sentences=[example.tokens])[0].graph == example.graph


def test_edges_see_no_names_and_nodes_do() -> None:
    model = small_model(read_by_edges=[0, 1, 2, 3, 4, 5, 6, 6, 6])
    one, other = (model(torch.tensor([[[2, word, 4]]]), torch.tensor([[3]])) for word in (7, 8))
    assert one.edge_log_probs.equal(other.edge_log_probs)
    assert not one.node_log_probs.equal(other.node_log_probs)


def test_what_is_out_of_reach_changes_nothing() -> None:
    model = LAGr(9, 5, 3, encoders="shared", width=16, encoder_layers=1, positions="rotary").eval()
    one, other = torch.tensor([[[2, 3, 4, 5, 6, 7]]]), torch.tensor([[[2, 3, 4, 5, 6, 8]]])
    length = torch.tensor([[6]])
    model.attend_up_to(2)
    near, far = model(one, length).node_log_probs, model(other, length).node_log_probs
    torch.testing.assert_close(near[0, :3], far[0, :3])
    assert (near[0, 3] - far[0, 3]).abs().max() > 1e-3
    padded = model(torch.nn.functional.pad(one, (0, 9)), length)  # farther than it reaches
    torch.testing.assert_close(padded.node_log_probs[0, :6], near[0])
    assert padded.log_prob(padded.argmax()).isfinite().all()
    model.attend_up_to(5)  # all that there is
    everything = model(one, length).node_log_probs
    model.attend_up_to(0)
    torch.testing.assert_close(model(one, length).node_log_probs, everything)


def test_reach_is_a_distance_that_enough_sentences_have() -> None:
    examples = [Example(("a",) * length, Graph(("x",))) for length in (3, 4, 5, 9)]
    assert Vocabulary.of(examples).reach == 0
    assert (
        Vocabulary.of(examples, reach=0.25).reach == 4
    )  # one of four has more than five tokens; two have five or more
    assert Vocabulary.of(examples, reach=0.5).reach == 3
    assert Vocabulary.of(examples, reach=0.01).reach == 8
