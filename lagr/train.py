"""The training loop: one seed, with restarts, that can be killed at any step and resumed.

Everything random comes from the seed: weights and dropout from torch's generator, noise from a generator of its own,
the order of the data from (seed, epoch). All of it is in the checkpoint, so a resumed run takes the same steps.
"""

from __future__ import annotations

import json
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagr import __version__, runs
from lagr.associate import associated_alignments
from lagr.batch import Batch, epochs, pack
from lagr.config import Config
from lagr.datasets import Example, Source, jsonl
from lagr.errors import ConfigError, DataError, RunError
from lagr.evaluate import Evaluation, evaluate
from lagr.forms import FORMALISMS
from lagr.loss import strong_loss, weak_loss
from lagr.parser import Parser, build
from lagr.progress import Progress
from lagr.vocab import Vocabulary

LOG_EVERY = 50  # steps between two lines of losses; reading a loss makes the host wait for the device


def train(config: Config, source: Source, out: Path, resume: bool = False) -> dict[str, Any]:
    """Trains into a run folder and returns its report."""
    examples = training_examples(config, source)
    vocab = Vocabulary.of(examples)
    if resume:
        folder, saved = runs.open_run(out), runs.read_config(out)[0]
        if saved != config:
            raise ConfigError(
                f"--resume: {_difference(saved, config)} in {out}; resume with the settings it was started with"
            )
        if (folder / runs.REPORT).is_file():
            raise RunError(f"{folder} is finished: there is nothing to resume")
    else:
        folder = runs.create(out)
        runs.write_config(folder, config, source.formalism)
        runs.write_text(folder / runs.VOCAB, vocab.to_json())
    return Trainer(config, source, examples, vocab, folder).run()


class Trainer:
    def __init__(
        self, config: Config, source: Source, examples: list[Example], vocab: Vocabulary, folder: Path
    ) -> None:
        self.config, self.source, self.examples, self.vocab, self.folder = config, source, examples, vocab, folder
        self.device = choose_device(config.train.device)
        self.data = pack(examples, vocab, config.model.graph_layers, self.device)
        self.first_alignments = self._first_alignments()
        self.starts: list[dict[str, Any]] = []  # those that ended below the threshold
        self.seconds = 0.0
        self._begin(start=0)
        if (folder / runs.STATE).is_file():
            self._restore()

    # One start: from a seed to a trained model.

    def _begin(self, start: int) -> None:
        self.start, self.step = start, 0
        self.seed = self.config.train.seed + 1_000_000 * start  # a restart's seed is no other run's first seed
        torch.manual_seed(self.seed)
        self.model = build(self.config, self.vocab).to(self.device)
        self.noise = torch.Generator(self.device).manual_seed(self.seed)
        self.alignments = self.first_alignments.clone()
        fused = self.device == "cuda"
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.config.train.learning_rate, fused=fused)
        self.loss_sum, self.loss_steps = torch.zeros((), device=self.device), 0

    def run(self) -> dict[str, Any]:
        train = self.config.train
        began = time.monotonic() - self.seconds
        with Progress(train.steps) as progress, _interruptible() as interrupted:
            while True:
                progress.begin(
                    self.step, f"seed {self.seed}" if self.start == 0 else f"restart {self.start}, seed {self.seed}"
                )
                if self.step == 0:
                    self._log({"event": "start", "seed": self.seed})
                batches = epochs(self.data.token_counts, train.batch, self.seed, self.step)
                self.model.train()
                while self.step < train.steps:
                    self._take_step(self.data.take(next(batches)))
                    self.seconds = time.monotonic() - began
                    if self.step % LOG_EVERY == 0 or self.step == train.steps:
                        progress.update(self.step, self._log_loss(), train.batch)
                    if train.evaluate_every and self.step % train.evaluate_every == 0 and self.step < train.steps:
                        self._evaluate_now(progress)
                    if self.step == self._restart_step and self._too_low(progress):
                        break
                    if interrupted() or (self.step % train.save_every == 0 and self.step < train.steps):
                        self._save()
                    if interrupted():
                        raise RunError(f"stopped at step {self.step}; everything is saved: go on with --resume")
                else:
                    break
                self._begin(self.start + 1)
        return self._finish(time.monotonic() - began)

    def _take_step(self, batch: Batch) -> None:
        align, train = self.config.align, self.config.train
        rate = learning_rate(self.step, train.steps, train.warmup, train.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self._autocast():
            dist = self.model(batch.tokens, batch.lengths)
        if align.supervision == "strong":
            loss = strong_loss(dist, batch.target, batch.alignment)
        else:
            nodes = batch.target.nodes.shape[1]
            previous = self.alignments[batch.rows, :nodes]
            if self.step < align.hold:
                loss = strong_loss(dist, batch.target, previous)
            else:
                remembered = previous if align.remember else None
                loss, found = weak_loss(dist, batch.target, align.candidates, align.noise, self.noise, remembered)
                self.alignments[batch.rows, :nodes] = found
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if train.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self.optimizer.step()
        self.loss_sum += loss.detach()
        self.loss_steps += 1
        self.step += 1

    def _autocast(self) -> Any:
        wanted = self.config.train.precision
        if wanted == "bf16" and self.device == "cpu":
            raise ConfigError(
                "train.precision = bf16 is for the GPU; on a CPU it is about ten times slower than float32"
            )
        bf16 = self.device == "cuda" and wanted != "float32"
        return torch.autocast("cuda", torch.bfloat16) if bf16 else nullcontext()

    # Restarts: the paper relaunches weakly supervised runs that don't fit their training data.

    @property
    def _restart_step(self) -> int:
        train = self.config.train
        return max(1, round(train.steps * train.restart_after)) if train.restart_below else -1

    def _too_low(self, progress: Progress) -> bool:
        result = self._evaluate("train")
        self._log({"split": "train", "exact": result.score.exact})
        if result.score.exact >= self.config.train.restart_below:
            return False
        self.starts.append({"seed": self.seed, "steps": self.step, "train_exact": result.score.exact, "kept": False})
        if self.start >= self.config.train.restarts:
            raise RunError(
                f"{self.start + 1} starts all stayed below {self.config.train.restart_below} % on the training data; "
                f"{self.folder / runs.METRICS} has them all"
            )
        progress.say(f"training accuracy {result.score.exact:.1f} % is too low: starting again with a new seed")
        return True

    # Evaluation and the files of the run.

    def _evaluate(self, split: str, limit: int | None = None) -> Evaluation:
        examples = self.examples if split == "train" else self.source.read(split)
        limit = limit or (self.config.train.evaluate_limit if split == "train" else None)
        if limit and limit < len(examples):
            chosen = np.random.default_rng(0).choice(len(examples), limit, replace=False)
            examples = [examples[i] for i in sorted(chosen)]
        parser = Parser(self.model, self.vocab, self.source.formalism, self.config, self.device)
        with self._autocast():
            graphs = [found.graph for found in parser.decode([example.tokens for example in examples])]
        self.model.train()
        return evaluate(examples, graphs, FORMALISMS.get(self.source.formalism or ""), split)

    def _evaluate_now(self, progress: Progress) -> None:
        if "dev" in self.source.splits:
            result = self._evaluate("dev", self.config.train.evaluate_limit)
            self._log({"split": "dev", "exact": result.score.exact})
            progress.say(f"step {self.step}: {result.score.exact:.1f} % exact on {result.score.n} sentences of dev")

    def _finish(self, seconds: float) -> dict[str, Any]:
        runs.write_tensors(self.folder / runs.MODEL, self.model.state_dict())
        if self.config.align.supervision == "weak":
            runs.write_tensors(self.folder / runs.ALIGNMENTS, {"alignments": self.alignments})
        results = {split: self._evaluate(split).to_dict() for split in self.source.splits}
        kept = {"seed": self.seed, "steps": self.step, "train_exact": results["train"]["exact"], "kept": True}
        report = {
            "lagr": __version__,
            "config": self.config.to_dict(),
            "starts": [*self.starts, kept],
            "seconds": round(seconds, 1),
            "machine": machine(self.device),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "evaluation": results,
        }
        runs.write_json(self.folder / runs.REPORT, report)
        (self.folder / runs.STATE).unlink(missing_ok=True)
        return report

    def _log(self, line: dict[str, Any]) -> None:
        with (self.folder / runs.METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"start": self.start, "step": self.step, **line}) + "\n")

    def _log_loss(self) -> float:
        loss = float(self.loss_sum) / max(1, self.loss_steps)
        self.loss_sum.zero_()
        self.loss_steps = 0
        train = self.config.train
        rate = learning_rate(self.step - 1, train.steps, train.warmup, train.learning_rate)
        self._log({"loss": loss, "learning_rate": rate, "seconds": round(self.seconds, 2)})
        return loss

    # Checkpoints.

    def _save(self) -> None:
        names = [name for name, _ in self.model.named_parameters()]
        tensors: dict[str, Tensor] = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, state in zip(names, self.optimizer.state_dict()["state"].values(), strict=True):
            tensors |= {f"optimizer.{key}.{name}": value for key, value in state.items()}
        tensors |= {"random.torch": torch.get_rng_state(), "random.noise": self.noise.get_state()}
        if self.device == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state()
        tensors |= {"alignments": self.alignments, "loss_sum": self.loss_sum}
        note = {
            "start": self.start,
            "step": self.step,
            "starts": self.starts,
            "seconds": self.seconds,
            "loss_steps": self.loss_steps,
        }
        runs.write_tensors(self.folder / runs.STATE, tensors, note)

    def _restore(self) -> None:
        tensors, note = runs.read_tensors(self.folder / runs.STATE)
        self._begin(note["start"])
        self.step, self.starts, self.seconds = note["step"], note["starts"], note["seconds"]
        self.loss_steps = note["loss_steps"]
        try:
            self.model.load_state_dict(
                {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
            )
            state = self.optimizer.state_dict()
            for number, (name, _) in enumerate(self.model.named_parameters()):
                keys = ("step", "exp_avg", "exp_avg_sq")
                state["state"][number] = {key: tensors[f"optimizer.{key}.{name}"] for key in keys}
            self.optimizer.load_state_dict(state)
            self.alignments, self.loss_sum = tensors["alignments"].to(self.device), tensors["loss_sum"].to(self.device)
            torch.set_rng_state(tensors["random.torch"])
            self.noise.set_state(tensors["random.noise"])
            if self.device == "cuda":
                torch.cuda.set_rng_state(tensors["random.cuda"])
        except (RuntimeError, KeyError, TypeError):
            where = f"{self.folder / runs.STATE} was saved with other data, or on another kind of device"
            raise RunError(f"{where}; resume it there, or train again") from None
        self._forget_later_metrics()

    def _forget_later_metrics(self) -> None:
        """Drops the lines that were written after the checkpoint: those steps will be taken again."""
        path = self.folder / runs.METRICS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        kept = []
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # the line being written when the run was killed
            if (entry["start"], entry["step"]) <= (self.start, self.step):
                kept.append(line + "\n")
        runs.write_text(path, "".join(kept))

    def _first_alignments(self) -> Tensor:
        """What weak supervision remembers at first: nothing, or the guess from counts.   (examples, J)"""
        first = torch.full_like(self.data.batch.alignment, -1)
        align = self.config.align
        if align.supervision == "weak" and align.start == "association":
            for row, slots in enumerate(associated_alignments(self.examples, self.config.model.graph_layers)):
                first[row, : len(slots)] = torch.tensor(slots)
        return first


def training_examples(config: Config, source: Source) -> list[Example]:
    """The training split, with the alignments that the configuration asks for, or without any.

    Weak supervision must not see an alignment, not even in the order of the nodes: they are shuffled.
    """
    examples = source.read("train")
    if not examples:
        raise DataError(f"{source.name} has no training sentences")
    if config.align.given:
        examples = _with_given_alignments(examples, config.align.given, source)
    if config.align.supervision == "strong":
        for number, example in enumerate(examples, start=1):
            if example.graph.slots is None:
                raise DataError(f"training sentence {number} has no alignment; set align.supervision to weak")
        return examples
    rng = np.random.default_rng(0)
    return [
        replace(
            example, graph=example.graph.with_slots(None).reordered(rng.permutation(len(example.graph.nodes)).tolist())
        )
        for example in examples
    ]


def learned_alignments(run: Path, source: Source) -> list[Example]:
    """The training examples of a weakly supervised run, with the alignments that it settled on."""
    config, _ = runs.read_config(runs.open_run(run))
    if not (run / runs.ALIGNMENTS).is_file():
        raise RunError(f"{run} has no learned alignments: it is not finished, or was trained with strong supervision")
    table = runs.read_tensors(run / runs.ALIGNMENTS)[0]["alignments"].tolist()
    examples = training_examples(config, source)
    if len(table) != len(examples):
        raise DataError(f"{run} was trained on {len(table)} sentences, but {source.name} has {len(examples)}")
    return [
        replace(example, graph=example.graph.with_slots(slots[: len(example.graph.nodes)]))
        for example, slots in zip(examples, table, strict=True)
    ]


def _with_given_alignments(examples: list[Example], given: str, source: Source) -> list[Example]:
    path = Path(given)
    aligned: Sequence[Example] = learned_alignments(path, source) if path.is_dir() else [e for _, e in jsonl.read(path)]
    if [e.tokens for e in aligned] != [e.tokens for e in examples]:
        raise DataError(f"the sentences in {given} are not those of {source.name}'s training split, in the same order")
    return [replace(example, graph=other.graph) for example, other in zip(examples, aligned, strict=True)]


def learning_rate(step: int, steps: int, warmup: int, peak: float) -> float:
    """Rises linearly over the warm-up, then falls linearly to 0 at the last step."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (steps - step) / max(1, steps - warmup)


def choose_device(wanted: str) -> str:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device is cuda, but no GPU can be seen; use cpu or auto")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def machine(device: str) -> str:
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    return f"{name}, torch {torch.__version__}"


def _difference(saved: Config, given: Config) -> str:
    one, other = saved.to_dict(), given.to_dict()
    section, key = next((s, k) for s in one for k in one[s] if one[s][k] != other[s][k])
    return f"{section}.{key} is {one[section][key]!r}, not {other[section][key]!r},"


@contextmanager
def _interruptible() -> Iterator[Any]:
    """Lets the step under way finish when Ctrl-C or a stop signal comes; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever started this one handles signals
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
