"""The seq2seq baselines: the model against plain torch, decoding, training beside other seeds, and the whole way round."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lagr
from lagr import config, memory, runs
from lagr.batch import pack_forms
from lagr.chance import make_keys
from lagr.cli import main
from lagr.config import Config
from lagr.datasets import Example, Source
from lagr.errors import ConfigError, DataError, RunError
from lagr.evaluate import evaluate
from lagr.forms import cogs, sparql, spelling
from lagr.graph import Graph
from lagr.seq2seq import END, Seq2Seq, TransformerDecoder, form_loss
from lagr.train import Trainer, train
from lagr.vocab import Vocabulary

KINDS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "universal": {"shared_layers": True, "encoder_layers": 3},
    "lstm": {"encoder": "lstm"},
}
TOKENS = torch.tensor([[[3, 4, 5, 6, 7], [8, 9, 2, 0, 0], [4, 4, 4, 4, 0]]])
LENGTHS = torch.tensor([[5, 3, 4]])
FORM = torch.tensor([[[1, 2, 3, 4, END, END], [5, 6, 7, 8, 9, END], [2, END, END, END, END, END]]])


def model_of(kind: str, **more: Any) -> Seq2Seq:
    torch.manual_seed(3)
    options = {"width": 16, "encoder_layers": 2, "heads": 2, "dropout": 0.0, "longest_form": 40, **KINDS[kind], **more}
    return Seq2Seq(12, 11, **options).eval()


@cache
def writer_of(kind: str) -> Seq2Seq:
    """A model that learned something, so that its forms differ, and are longer than its cache is at first."""
    model = model_of(kind)
    form = torch.randint(1, 11, (1, 3, 24))
    form[0, 1, 20:], form[0, 2, 5:] = END, END
    form = F.pad(form, (0, 1))
    optimizer = torch.optim.Adam(model.parameters(), 7e-3)
    for _ in range(100):
        optimizer.zero_grad()
        form_loss(model(TOKENS, LENGTHS, form), form).sum().backward()
        optimizer.step()
    return model.requires_grad_(False)


def next_token(model: Seq2Seq, sentence: torch.Tensor, prefix: list[int]) -> torch.Tensor:
    """log p of the token after a prefix, of one sentence without padding, with everything computed anew."""
    lengths = torch.tensor([[len(sentence)]])
    encoded = model.encode(model.embed(sentence[None, None], None), lengths, None)
    before = torch.tensor([[[END, *prefix]]])
    hidden = model.decode(model.embed_form(before, None), model.decode.begin(encoded, lengths), None)
    return model.score(hidden)[0, 0, -1]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_loss_is_the_cross_entropy_of_each_token_after_those_before_it(kind: str) -> None:
    model, logits, wanted = model_of(kind), [], []
    for sentence, length, form in zip(TOKENS[0], LENGTHS[0].tolist(), FORM[0].tolist(), strict=True):
        for place in range(form.index(END) + 1):
            logits.append(next_token(model, sentence[:length], form[:place]))
            wanted.append(form[place])
    expected = F.cross_entropy(torch.stack(logits), torch.tensor(wanted))
    torch.testing.assert_close(form_loss(model(TOKENS, LENGTHS, FORM), FORM), expected[None])


@torch.no_grad()
def test_a_decoder_layer_computes_what_torchs_does() -> None:
    layer = model_of("transformer").decode.layers[0]
    other = nn.TransformerDecoderLayer(16, 2, 16, dropout=0.0, batch_first=True).eval()
    attention = (other.self_attn, layer.attend, layer.attended), (other.multihead_attn, None, layer.recalled)
    for theirs, ours, out in attention:
        both = ours.weight[0] if ours else torch.cat([layer.ask.weight[0], layer.recall.weight[0]], dim=1)
        theirs.in_proj_weight.copy_(both.T)
        theirs.out_proj.weight.copy_(out.weight[0].T)
        theirs.in_proj_bias.zero_(), theirs.out_proj.bias.zero_()
    for linear, affine in ((other.linear1, layer.widen), (other.linear2, layer.narrow)):
        linear.weight.copy_(affine.weight[0].T), linear.bias.copy_(affine.bias[0, 0])
    x, sentence = torch.randn(1, 3, 6, 16), torch.randn(1, 3, 5, 16)
    decoder = TransformerDecoder(1, 16, 1, 2, 16, 0.0)
    decoder.layers[0] = layer
    padding = torch.arange(5) >= LENGTHS[0][:, None]
    expected = other(
        x[0], sentence[0], nn.Transformer.generate_square_subsequent_mask(6), memory_key_padding_mask=padding
    )
    torch.testing.assert_close(decoder(x, decoder.begin(sentence, LENGTHS), None)[0], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_an_lstm_decoder_says_what_torchs_lstm_does() -> None:
    decode = model_of("lstm").decode
    state, x = decode.begin(torch.randn(1, 3, 5, 16), LENGTHS), torch.randn(1, 3, 4, 16)
    sentence, above = state.sentence[0, :, 0], x[0]
    for layer, (hidden, cell) in zip(decode.layers, state.layers, strict=True):
        lstm = nn.LSTM(16, 16, batch_first=True)
        lstm.weight_ih_l0.copy_(layer.inputs.weight[0].T), lstm.weight_hh_l0.copy_(layer.recurrent.weight[0].T)
        lstm.bias_ih_l0.copy_(layer.inputs.bias[0, 0]), lstm.bias_hh_l0.copy_(layer.recurrent.bias[0, 0])
        above, _ = lstm(above, (hidden[0], cell[0]))
    scores = torch.einsum("btd,bnd->btn", above @ decode.ask.weight[0], sentence) / 4
    weights = scores.masked_fill((torch.arange(5) >= LENGTHS[0][:, None])[:, None], -torch.inf).softmax(-1)
    expected = torch.tanh(torch.cat([weights @ sentence, above], dim=-1) @ decode.combine.weight[0])
    torch.testing.assert_close(decode(x, state, None)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_with_what_is_kept_equals_decoding_from_the_start_every_time(kind: str) -> None:
    model = writer_of(kind)
    written, log_probs = model.write(TOKENS, LENGTHS)
    rows = []
    for b, length in enumerate(LENGTHS[0].tolist()):
        row: list[int] = []
        total = 0.0
        while len(row) < 40 and END not in row:
            scores = next_token(model, TOKENS[0, b, :length], row)
            total += float(scores.max())
            row.append(int(scores.argmax()))
        rows.append(row)
        assert written[0, b, : len(row)].tolist() == row and not written[0, b, len(row) :].any()
        assert float(log_probs[0, b]) == pytest.approx(total, abs=1e-3)
    assert len({tuple(row) for row in rows}) == 3 and max(map(len, rows)) > 16, "the test would see no difference"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_changes_nothing_and_neither_does_padding(kind: str) -> None:
    model = writer_of(kind)
    padded_tokens, padded_form = F.pad(TOKENS, (0, 3), value=7), F.pad(FORM, (0, 2))
    together = model(TOKENS, LENGTHS, FORM)
    torch.testing.assert_close(model(padded_tokens, LENGTHS, padded_form)[..., :6], together)
    torch.testing.assert_close(
        form_loss(model(padded_tokens, LENGTHS, padded_form), padded_form), form_loss(together, FORM)
    )
    written, _ = model.write(TOKENS, LENGTHS)
    for b, length in enumerate(LENGTHS[0].tolist()):
        alone, size = TOKENS[:, b : b + 1, :length], LENGTHS[:, b : b + 1]
        torch.testing.assert_close(model(alone, size, FORM[:, b : b + 1])[0, 0], together[0, b])
        row = model.write(alone, size)[0][0, 0]
        assert row.tolist() == written[0, b, : len(row)].tolist()


def test_shared_layers_have_the_weights_of_one() -> None:
    one, three, shared = (
        sum(p.numel() for p in Seq2Seq(12, 11, width=16, heads=2, **more).parameters())
        for more in ({"encoder_layers": 1}, {"encoder_layers": 3}, {"encoder_layers": 3, "shared_layers": True})
    )
    assert one == shared < three


def test_dropout_follows_from_its_key_in_every_layer() -> None:
    for kind in KINDS:
        model = model_of(kind, dropout=0.4)
        keys = make_keys(torch.tensor([5]), 12)
        first = model(TOKENS, LENGTHS, FORM, keys)
        assert torch.equal(first, model(TOKENS, LENGTHS, FORM, keys))
        assert not torch.isclose(first, model(TOKENS, LENGTHS, FORM, make_keys(torch.tensor([5]), 13))).all()
        parts = model.keys_of_parts(keys)
        assert len({int(key) for part in parts for key in part.flatten()}) == sum(part.numel() for part in parts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_in_bf16_looks_at_no_number_on_the_host(kind: str) -> None:
    """Tensors without numbers stand in for a GPU's, on which a step is recorded; matrices are in bf16 there."""
    model = model_of(kind, dropout=0.2).to("meta")
    for parameter in model.parameters():
        if parameter.dim() == 3 and parameter.shape[1] > 1:
            parameter.data = parameter.data.to(torch.bfloat16)
    tokens, lengths, form, keys = (x.to("meta") for x in (TOKENS, LENGTHS, FORM, make_keys(torch.tensor([5]), 1)))
    loss = form_loss(model(tokens, lengths, form, keys), form)
    assert loss.dtype == torch.float32 and len(torch.autograd.grad(loss.sum(), list(model.parameters()))) > 5


# Training

SMALL = [
    ("model", "kind", "seq2seq"), ("model", "width", 32), ("model", "encoder_layers", 1), ("model", "heads", 2),
    ("train", "batch", 6), ("train", "evaluate_every", 0),
]  # fmt: skip


@pytest.fixture(scope="module")
def short(mini: Source) -> Source:
    """The 30 training sentences of mini with the shortest forms, and few others."""
    examples = {split: sorted(mini.read(split), key=lambda e: len(e.form or ""))[:30] for split in mini.splits}
    examples |= {split: examples[split][:4] for split in ("dev", "test", "gen")}
    return replace(mini, rows=lambda split: examples[split])


@pytest.fixture(scope="module")
def small() -> Config:
    return config.override(config.load("quickstart"), SMALL)


def trainer(settings: Config, source: Source, seeds: list[int], folder: Path) -> Trainer:
    examples = source.read("train")
    vocab = Vocabulary.of(examples, spelling(source.formalism, "full"))
    configs = [config.override(settings, [("train", "seed", seed)]) for seed in seeds]
    return Trainer(configs, source, {"train": examples}, vocab, [folder / str(s) for s in seeds], folder / "state")


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_among_others_takes_the_steps_it_takes_alone(
    tmp_path: Path, small: Config, short: Source, kind: str
) -> None:
    settings = config.override(small, [("model", key, value) for key, value in KINDS[kind].items()])
    together = trainer(settings, short, [3, 8], tmp_path)
    alone = [trainer(settings, short, [seed], tmp_path) for seed in (3, 8)]
    for _ in range(8):
        for one in (together, *alone):
            one._take_step()
    losses = together.engine.loss_sums
    torch.testing.assert_close(losses, torch.cat([one.engine.loss_sums for one in alone]), rtol=1e-4, atol=1e-4)
    assert losses[0] != losses[1]
    for s, one in enumerate(alone):
        for name, weights in one.engine.weights_of(0).items():
            torch.testing.assert_close(together.engine.weights_of(s)[name], weights, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("kind", "rate"), [("transformer", 4e-3), ("lstm", 1.2e-2)])
def test_thirty_sentences_are_learned_by_heart(
    tmp_path: Path, small: Config, short: Source, kind: str, rate: float
) -> None:
    changes = [
        ("train", "steps", 280),
        ("train", "learning_rate", rate),
        ("model", "dropout", 0.0),
        ("train", "batch", 15),
    ]
    settings = config.override(small, [*changes, ("model", "encoder", kind), ("model", "width", 48)])
    (report,) = train(settings, short, tmp_path / "run")
    result = report["evaluation"]["train"]
    assert result["n"] == 30 and result["exact"] == 100 and result["order_free"] == 100


def test_a_resumed_run_ends_as_one_that_was_never_interrupted(
    tmp_path: Path, small: Config, short: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.override(small, [("train", "steps", 12), ("train", "save_every", 5)])
    train(settings, short, tmp_path / "whole", seeds=2)

    @contextmanager
    def after_seven_steps() -> Any:
        asked = iter(range(100))
        yield lambda: next(asked) >= 12  # it is asked twice a step

    with monkeypatch.context() as patch:
        patch.setattr("lagr.train._interruptible", after_seven_steps)
        with pytest.raises(RunError, match="stopped at step 7; everything is saved"):
            train(settings, short, tmp_path / "broken", seeds=2)
    train(settings, short, tmp_path / "broken", resume=True, seeds=2)
    for seed in ("seed-0", "seed-1"):
        whole, broken = (runs.read_tensors(tmp_path / run / seed / runs.MODEL)[0] for run in ("whole", "broken"))
        assert all(torch.equal(whole[name], broken[name]) for name in whole)
        assert not (tmp_path / "whole" / seed / runs.ALIGNMENTS).exists()


def test_forms_are_packed_whole_in_buckets_that_fit_sentence_and_form(mini: Source) -> None:
    examples, written_as = mini.read("train"), spelling("cogs", "full")
    vocab = Vocabulary.of(examples, written_as)
    packed = pack_forms(examples, vocab, written_as, 512)
    assert sorted(row for bucket in packed.buckets for row in bucket.rows) == list(range(len(examples)))
    for bucket in packed.buckets:
        batch = packed.take(torch.from_numpy(bucket.rows), bucket)
        assert batch.tokens.shape[1] == batch.lengths.max() == bucket.tokens
        for row, tokens, form in zip(bucket.rows, batch.tokens.tolist(), batch.form.tolist(), strict=True):
            words = [vocab.words[number - 2] for number in tokens if number]
            written = [vocab.form_token(number) for number in form[: form.index(END)]]
            assert tuple(words) == examples[row].tokens and " ".join(written) == examples[row].form
    real, padded = (sum(len(b.rows) * b.form for b in packed.buckets), packed.sizes[1] * len(examples))
    assert real < 0.6 * padded


def test_a_form_that_cannot_be_learned_names_its_sentence() -> None:
    example = Example(("Ida", "sang"), Graph(("Ida",)), "a b c")
    vocab = Vocabulary.of([example], spelling("cogs", "full"))
    with pytest.raises(DataError, match=r"Ida sang.* 3 tokens.*longest_form to 4 or more"):
        pack_forms([example], vocab, spelling("cogs", "full"), 3)
    with pytest.raises(DataError, match="has no form"):
        pack_forms([replace(example, form=None)], vocab, spelling("cogs", "full"), 9)
    with pytest.raises(DataError, match="graphs without forms"):
        spelling(None, "full")
    with pytest.raises(DataError, match=r"set data\.form to full"):
        spelling("cogs", "compressed")


def test_seq2seq_learns_the_whole_form_where_a_graph_holds_a_part(tmp_path: Path) -> None:
    form = "LAMBDA a . LAMBDA e . gasp . agent ( e , a )"
    (tmp_path / "train.tsv").write_text(f"gasp\t{form}\tprimitive\n")
    from lagr.datasets import cogs as dataset

    (example,) = dataset.source(tmp_path).read("train")
    assert example.partly_kept and example.written_form == form and example.form == "LAMBDA a . gasp ( a )"
    result = evaluate([example], [cogs.read(form, ("gasp",))], None, forms=[form])
    assert result.score.exact == result.isomorphic.exact == 100


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([("model", "shared_layers", True)], "model.shared_layers is for model.kind = seq2seq"),
        ([("data", "form", "compressed")], "data.form is for model.kind = seq2seq"),
        ([*SMALL, ("model", "longest_form", 0)], "model.longest_form is 0; it must be at least 1"),
        ([*SMALL, ("model", "encoder", "lstm"), ("model", "shared_layers", True)], "needs model.encoder = transformer"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: list[Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config.override(config.Config(), changes)


def test_more_of_anything_needs_more_memory(short: Source) -> None:
    def need(seeds: int = 1, form: int = 40, **changes: Any) -> int:
        from lagr.batch import Bucket
        from lagr.parser import build

        changed = [("model", "kind", "seq2seq"), *(("model", key, value) for key, value in changes.items())]
        settings = config.override(config.Config(), changed)
        model = build(settings, Vocabulary(("w",) * 50, (), (), ("f",) * 50))
        return memory.training_bytes(settings, model, Bucket(torch.arange(1).numpy(), 9, form=form), 1000, seeds, False)

    for encoder in ("transformer", "lstm"):
        more = need(seeds=2, encoder=encoder), need(form=80, encoder=encoder), need(decoder_layers=6, encoder=encoder)
        assert min(more) > need(encoder=encoder)


# Evaluation and the command line

QUERY = "SELECT count(*) WHERE {\n?x0 a ns:film.actor .\nM0 ns:a.b ?x0\n}"


def test_the_order_of_conjuncts_counts_in_exact_and_not_in_order_free() -> None:
    lines = QUERY.split("\n")
    turned = "\n".join([lines[0], lines[2] + " .", lines[1].removesuffix(" ."), lines[3]])
    example = Example(("Was", "M0"), sparql.read(QUERY), QUERY, "easy")
    graphs = [sparql.read(sparql.in_order(form)) for form in (QUERY, turned)]
    result = evaluate([example] * 3, [*graphs, None], None, forms=[QUERY, turned, "SELECT"]).to_dict()
    assert round(result["exact"]) == 33 and round(result["order_free"]) == 67 and "isomorphic" not in result
    assert round(result["by_category"]["easy"]["order_free"]) == 67
    assert result["errors"]["other"]["n"] == 1 and result["errors"]["unreadable"]["n"] == 1


def test_from_training_to_parsing_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"text": "Was M0 an actor", "form": "SELECT count(*) WHERE {\nM0 a ns:film.actor\n}", "formalism": "sparql"},
        {"text": "Did M0 act", "form": QUERY, "formalism": "sparql"},
    ]  # fmt: skip
    data, run = tmp_path / "data", str(tmp_path / "run")
    data.mkdir()
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = "--model.kind seq2seq --data.form compressed --model.dropout 0 --train.steps 60 --train.batch 2 --train.warmup 5".split()
    assert main(["train", "quickstart", "--out", run, "--data.name", str(data), *changes]) == 0
    assert "test   100.00 % exact" in capsys.readouterr().out
    file = tmp_path / "result.json"
    assert main(["evaluate", run, "--json", str(file)]) == 0
    assert "order-free 100.00 %" in capsys.readouterr().out
    result = json.loads(file.read_text())
    assert result["exact"] == result["order_free"] == 100 and result["n"] == 2
    assert main(["parse", run, "Did M0 act"]) == 0
    assert capsys.readouterr().out == QUERY + "\n"
    parse = lagr.load(run).parse("Did M0 act")
    assert parse.form == QUERY and parse.graph == sparql.read(QUERY) and 0.5 < parse.probability <= 1
    assert main(["parse", run, "Did M0 act", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["graph"] == sparql.read(QUERY).to_dict()
    for command in (["align", run], ["align", run, "--split", "test"], ["export", run, "--onnx", str(tmp_path / "x.onnx")], ["parse", run, "Did M0 act", "--onnx", "x"]):  # fmt: skip
        assert main(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("lagr: ") and "writes forms (model.kind = seq2seq)" in line


def test_a_form_that_cannot_be_read_is_printed_and_its_problem_said(
    tmp_path: Path, small: Config, short: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config.override(small, [("train", "steps", 1), ("model", "longest_form", 60)])
    train(settings, short, tmp_path / "run")
    parse = lagr.load(tmp_path / "run").parse("Ida sang .")
    capsys.readouterr()
    assert parse.form is not None and parse.graph is None and parse.problem
    for kind in ("form", "text", "dot"):
        assert main(["parse", str(tmp_path / "run"), "Ida sang .", "--format", kind]) == 0
        out, err = capsys.readouterr()
        assert (out.strip() == parse.form and not err) if kind == "form" else (parse.problem in err and out == "\n")
