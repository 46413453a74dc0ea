from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from lagr import config
from lagr.batch import Schedule, buckets, pack
from lagr.chance import dropout, make_keys, normal, uniform
from lagr.config import Config
from lagr.datasets import Source
from lagr.engine import Engine
from lagr.loss import strong_loss
from lagr.objectives import GraphObjective
from lagr.parser import build
from lagr.supervision import training_examples
from lagr.train import Trainer, train
from lagr.vocab import Vocabulary

# Many seeds at once


def trainer(settings: Config, source: Source, seeds: list[int], folder: Path) -> Trainer:
    examples = training_examples(settings, source)
    configs = [config.override(settings, [("train", "seed", seed)]) for seed in seeds]
    folders = [folder / str(seed) for seed in seeds]
    return Trainer(configs, source, {"train": examples}, Vocabulary.of(examples), folders, folder / "state")


@pytest.mark.parametrize(
    "changes",
    [
        [("model", "encoders", "separate")],
        [("model", "encoders", "shared"), ("align", "noise", 3.0)],
        [("model", "encoder", "lstm"), ("model", "encoders", "separate")],
        [("align", "supervision", "strong"), ("align", "start", "model"), ("align", "hold", 0)],
    ],
)
def test_a_seed_among_others_takes_the_steps_it_takes_alone(
    tmp_path: Path, small_config: Config, mini: Source, changes: list[tuple[str, str, object]]
) -> None:
    short_hold = [] if ("align", "hold", 0) in changes else [("align", "hold", 5)]
    settings = config.override(small_config, [*changes, *short_hold])
    together = trainer(settings, mini, [3, 8, 11], tmp_path)
    alone = [trainer(settings, mini, [seed], tmp_path) for seed in (3, 8, 11)]
    for _ in range(25):
        for one in (together, *alone):
            one._take_step()
        losses = together.engine.loss_sums
        torch.testing.assert_close(losses, torch.cat([one.engine.loss_sums for one in alone]), rtol=1e-3, atol=1e-3)
    assert len({round(loss, 2) for loss in losses.tolist()}) == 3  # and they are not all the same run
    assert torch.equal(together.engine.objective.alignments[1], alone[1].engine.objective.alignments[0])


def test_a_sentence_that_is_twice_in_a_batch_is_remembered_as_it_was_placed_first(
    tmp_path: Path, small_config: Config, mini: Source
) -> None:
    """A GPU writes both at once, number by number: of two alignments it would make one that is neither."""
    changes = [
        ("align", "start", "model"),
        ("align", "hold", 0),
        ("align", "remember", False),
        ("align", "noise", 50.0),
    ]
    objective = trainer(config.override(small_config, changes), mini, [3, 4], tmp_path).engine.objective
    assert isinstance(objective, GraphObjective)
    model = build(small_config, Vocabulary.of(training_examples(small_config, mini)))
    longest = objective.data.buckets[-1].rows
    rows = torch.tensor([[longest[0], longest[1], longest[0]], [longest[1], longest[0], longest[1]]])
    batch = objective.data.take(rows.flatten(), objective.data.buckets[-1])
    dist = model(batch.tokens[None], batch.lengths[None], None)
    parts = (dist.node_log_probs, dist.edge_log_probs, dist.slots, dist.valency_log_probs)
    used = objective._infer(parts, batch.target, torch.tensor([1, 2]), rows, torch.zeros(2), infer=True).view(2, 3, -1)
    assert not torch.equal(used[0, 0], used[0, 2]) and not torch.equal(used[1, 0], used[1, 2])
    J = used.shape[2]
    for s in range(2):
        assert torch.equal(objective.alignments[s, rows[s, :2], :J], used[s, :2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("encoder", ["transformer", "lstm"])
@pytest.mark.parametrize("supervision", ["strong", "weak"])
@pytest.mark.parametrize(("precision", "off"), [("float32", 1e-3), ("bf16", 0.03)])
def test_a_gpu_takes_the_steps_that_a_cpu_takes(
    tmp_path: Path, small_config: Config, mini: Source, encoder: str, supervision: str, precision: str, off: float
) -> None:
    """Compiled, recorded and with kernels of its own, in float32 and in bf16. The noise would move alignments."""
    changes = [("model", "encoder", encoder), ("align", "supervision", supervision), ("align", "noise", 0.0)]
    changes += [("align", "start", "model"), ("align", "hold", 0), ("train", "device", "cpu")]
    on_cpu = config.override(small_config, changes)
    on_gpu = config.override(on_cpu, [("train", "device", "cuda"), ("train", "precision", precision)])
    one, other = (trainer(settings, mini, [3, 8], tmp_path) for settings in (on_cpu, on_gpu))
    for _ in range(10):
        one._take_step()
        other._take_step()
    torch.testing.assert_close(other.engine.loss_sums.cpu(), one.engine.loss_sums, rtol=off, atol=0)


@pytest.mark.parametrize("supervision", ["strong", "weak"])
def test_bf16_takes_the_steps_that_float32_takes(
    tmp_path: Path, small_config: Config, mini: Source, supervision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, of whatever kind: one without instructions for it gives the same, slowly."""
    monkeypatch.setattr("lagr.devices.cpu_multiplies_bf16", lambda: True)
    changes = [("align", "supervision", supervision), ("align", "noise", 0.0), ("train", "device", "cpu")]
    exact = config.override(small_config, changes)
    rounded = config.override(exact, [("train", "precision", "bf16")])
    one, other = (trainer(settings, mini, [3, 8], tmp_path) for settings in (exact, rounded))
    assert other.engine.model.node_scorer.weight.dtype == torch.bfloat16
    for _ in range(10):
        one._take_step()
        other._take_step()
    assert not torch.equal(other.engine.loss_sums, one.engine.loss_sums)
    torch.testing.assert_close(other.engine.loss_sums, one.engine.loss_sums, rtol=0.03, atol=0)


def test_several_seeds_end_with_a_model_each(tmp_path: Path, small_config: Config, mini: Source) -> None:
    settings = config.override(small_config, [("train", "steps", 8), ("train", "seed", 4)])
    reports = train(settings, mini, tmp_path / "run", seeds=2)
    assert [report["starts"][0]["seed"] for report in reports] == [4, 5]
    import lagr

    one, other = (lagr.load(tmp_path / "run" / f"seed-{seed}").model.state_dict() for seed in (4, 5))
    assert all(not torch.equal(one[name], other[name]) for name in one if "shift" not in name and "scale" not in name)


def test_one_seed_restarts_while_the_others_go_on(
    tmp_path: Path, small_config: Config, mini: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [("train", "steps", 6), ("train", "restart_below", 50.0), ("train", "restart_after", 0.5)]
    too_low = iter([True, False, False])
    monkeypatch.setattr(
        Trainer,
        "_too_low",
        lambda self, s, run: (low := next(too_low)) and not run.failed.append({"train_exact": 0.0}) and low,
    )
    reports = train(config.override(small_config, changes), mini, tmp_path / "run", seeds=2)
    assert [len(report["starts"]) for report in reports] == [2, 1]
    assert [report["starts"][-1]["seed"] for report in reports] == [1_000_000, 1]
    assert all(report["starts"][-1]["steps"] == 6 for report in reports)


def test_a_step_is_adam_with_clipping(small_config: Config, mini: Source) -> None:
    """The tables' update against torch's own optimizer on the same gradients."""
    settings = config.override(
        small_config,
        [
            ("model", "dropout", 0.0),
            ("model", "encoders", "separate"),
            ("align", "supervision", "strong"),
            ("align", "start", "model"),
            ("align", "hold", 0),
        ],
    )
    examples = training_examples(settings, mini)
    vocab = Vocabulary.of(examples)
    data = pack(examples, vocab, 1)

    def new_model(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return build(settings, vocab)

    objective = GraphObjective(data, settings.align, data.batch.alignment, models=2)
    engine = Engine(new_model, [0, 1], objective, 0.5, "cpu", bf16=False)  # type: ignore[arg-type]
    models = [new_model(0), new_model(1)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=3e-3) for model in models]
    for step in range(4):
        rows = np.stack([data.buckets[0].rows[4 * step : 4 * step + 4], data.buckets[0].rows[20 + step : 24 + step]])
        engine.step(0, rows, np.array([step, step]), np.array([3e-3, 3e-3]), held=np.zeros(2, bool))
        for model, optimizer, its_rows in zip(models, optimizers, rows, strict=True):
            batch = data.take(torch.from_numpy(its_rows), data.buckets[0])
            optimizer.zero_grad()
            strong_loss(model(batch.tokens[None], batch.lengths[None]), batch.target, batch.alignment).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    for s, model in enumerate(models):
        for name, expected in model.named_parameters():
            torch.testing.assert_close(engine.weights_of(s)[name], expected.detach(), rtol=1e-4, atol=2e-5)


# Which rows a step takes


def test_buckets_hold_every_row_and_pad_little() -> None:
    rng = np.random.default_rng(0)
    lengths = np.minimum(3 + rng.geometric(0.2, 3000), 60)
    sizes = np.stack([lengths, *rng.integers(0, 9, (2, 3000)), lengths // 4], axis=1)
    found = buckets(sizes)
    assert sorted(np.concatenate([bucket.rows for bucket in found]).tolist()) == list(range(3000)) and len(found) <= 5
    for bucket in found:
        assert sizes[bucket.rows, 0].max() == bucket.tokens and sizes[bucket.rows, 1].max() <= bucket.nodes
        assert sizes[bucket.rows, 3].max() == bucket.alike  # fewer pairs to try where sentences are short
    padded = sum(len(bucket.rows) * bucket.tokens for bucket in found)
    assert padded < 1.35 * sizes[:, 0].sum() < 60 * 3000


def test_the_ends_of_buckets_are_the_best_there_are() -> None:
    from itertools import combinations

    lengths = np.array([2, 2, 2, 3, 5, 5, 8, 9, 9, 9, 9, 14])
    sizes = np.stack([lengths] * 4, axis=1)

    def padded(ends: tuple[int, ...]) -> int:
        return sum(min(end for end in ends if end >= length) for length in lengths.tolist())

    options = [(*chosen, 14) for chosen in combinations([2, 3, 5, 8, 9], 2)]
    found = tuple(bucket.tokens for bucket in buckets(sizes, most=3))
    assert padded(found) == min(padded(option) for option in options)


def test_a_schedule_shows_every_row_equally_often_in_an_order_of_the_seed() -> None:
    sizes = np.stack([np.repeat([4, 9], [60, 30])] * 4, axis=1)
    schedule = Schedule(buckets(sizes), 8, 900)
    seen = Counter(row for step in range(900) for row in schedule.rows(step, [1])[0].tolist())
    assert set(seen) == set(range(90)) and max(seen.values()) - min(seen.values()) < 12  # about 80 each
    assert schedule.rows(5, [1, 2]).tolist() == [schedule.rows(5, [1])[0].tolist(), schedule.rows(5, [2])[0].tolist()]
    assert schedule.rows(5, [1]).tolist() != schedule.rows(5, [2]).tolist()
    longest = [sizes[schedule.rows(step, [1])[0], 0].max() for step in range(50)]
    assert longest == [schedule.buckets[schedule.bucket(step)].tokens for step in range(50)]


# Random numbers


def test_random_numbers_depend_on_their_key_and_place_alone() -> None:
    keys = make_keys(torch.tensor([5, 6, 7]), 12)
    together = uniform((3, 4, 10), keys, 2)
    assert torch.equal(together[1:2], uniform((1, 4, 10), keys[1:2], 2))
    for other in (uniform((3, 4, 10), keys, 3), uniform((3, 4, 10), make_keys(torch.tensor([5, 6, 7]), 13), 2)):
        assert not torch.isclose(together, other).any()


def test_random_numbers_are_distributed_as_they_should_be() -> None:
    keys = make_keys(torch.arange(20), 3)
    flat, bell = uniform((20, 50_000), keys, 1), normal((20, 50_000), keys, 9)
    shares = torch.histc(flat, 50, 0, 1) / flat.numel()
    assert (shares - 0.02).abs().max() < 0.0005
    assert abs(float(bell.mean())) < 0.005 and abs(float(bell.std()) - 1) < 0.005
    assert torch.corrcoef(flat).fill_diagonal_(0).abs().max() < 0.03
    assert abs(float(torch.corrcoef(torch.stack([flat[:, 1:].flatten(), flat[:, :-1].flatten()]))[0, 1])) < 0.005


@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_dropout_drops_its_share_and_keeps_the_mean(probability: float) -> None:
    dropped = dropout(torch.ones(3, 100_000), probability, make_keys(torch.arange(3), 0), 4)
    assert ((dropped == 0).float().mean(1) - probability).abs().max() < 0.01
    assert (dropped.mean(1) - 1).abs().max() < 0.02
    assert torch.equal(dropout(dropped, probability, None, 4), dropped)
