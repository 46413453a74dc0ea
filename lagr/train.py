"""The training loop: one seed or many at once, with restarts, that can be killed at any step and resumed.

Everything random follows from a seed and a step's number, and the rest is in the checkpoint, so a resumed run takes
the same steps, and a seed takes the same steps beside others as alone.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagr import __version__, confidence, memory, pretrained, runs
from lagr.associate import associated_alignments
from lagr.batch import Schedule, pack, pack_forms
from lagr.calibrate import FEWEST, calibrate
from lagr.config import Config, override
from lagr.copying import copied_labels
from lagr.datasets import Example, Source
from lagr.devices import choose_device, machine, threads, uses_bf16
from lagr.engine import Engine
from lagr.errors import ConfigError, DataError, RunError, StoppedError
from lagr.evaluate import Evaluation, evaluate, evaluate_parser
from lagr.forget import Forget
from lagr.forms import spelling
from lagr.graph import Graph
from lagr.model import LAGr
from lagr.naming import order_of_names
from lagr.objectives import FormObjective, GraphObjective, Objective
from lagr.parser import AnyParser, build, parser_of
from lagr.processes import at_work_on
from lagr.progress import Progress
from lagr.rules import rulebook
from lagr.seq2seq import Seq2Seq
from lagr.supervision import (
    as_counted,
    check_names,
    fingerprint,
    fingerprint_of_all,
    more_examples,
    own_alignments,
    training_examples,
    wanted_examples,
)
from lagr.vocab import Vocabulary

PROGRESS = ("start", "began", "failed", "exhausted", "best", "report")  # of a run, as in a checkpoint
LOG_EVERY = 50  # steps between two lines of losses; reading a loss makes the host wait for the device


def train(
    config: Config,
    source: Source,
    out: Path,
    resume: bool = False,
    seeds: int | None = None,
    why: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Trains into a run folder, or several seeds at once into folders of it, and returns the report of each.

    why: reasons for the settings, to be written beside them.
    """
    # All of it, at once: a bad row in the last split should be found before training, not after.
    splits = {split: source.read(split) for split in source.splits if split != "train"}
    splits["train"] = examples = training_examples(config, source)
    check_names(config, examples)
    written_as = spelling(source.formalism, config.data.form) if config.model.kind == "seq2seq" else None
    model = config.model
    labels = model.kind == "lagr"  # and does not write forms
    copied = copied_labels(examples, model.graph_layers) if labels and config.data.copy else None
    shapes = labels and config.train.unknown > 0
    more = (model.twins, model.anonymous, model.reach, model.needs) if labels else ()
    vocab = Vocabulary.of(examples, written_as, model.valency, copied, shapes, *more)
    if labels and config.align.variables == "alike":
        vocab = replace(vocab, names=order_of_names(example.form for example in examples if example.form))
    rulebook(config.rules, vocab)  # says what is wrong with them
    data = fingerprint(examples)
    first = config.train.seed
    configs = [override(config, [("train", "seed", seed)]) for seed in range(first, first + (seeds or 1))]
    of_each = own_alignments(configs, source, examples)
    folders = [out] if seeds is None else [out / f"seed-{c.train.seed}" for c in configs]
    if resume:
        for folder, its_config in zip(folders, configs, strict=True):
            saved = runs.read_config(runs.open_run(folder))[0]
            if saved != its_config:
                difference = _difference(saved, its_config)
                raise ConfigError(f"--resume: {difference} in {folder}; resume with the settings it was started with")
            if runs.read_fingerprint(folder) != data:
                raise DataError(f"{source.name} is not the data that {folder} was started with; resume with that")
        if all((folder / runs.REPORT).is_file() for folder in folders):
            raise RunError(
                f"{out} is finished: there is nothing to resume; train again into another folder, with --out"
            )
    else:
        runs.check_free(out)
    explained = memory.explained("training", memory.training_advice(len(configs)))
    with at_work_on(out), explained, threads(config.train.threads):
        # It says what can't be done.
        trainer = Trainer(configs, source, splits, vocab, folders, out / runs.STATE, resume, of_each)
        if not resume:
            name = config.model.pretrained
            encoder = pretrained.load(name).fingerprint if name else ""
            runs.create(out)
            for folder, its_config in zip(folders, configs, strict=True):
                folder.mkdir(exist_ok=True)
                runs.write_config(folder, its_config, source.formalism, data, why, encoder)
        for folder in folders:  # of a resumed run too: it may have begun before there was all that there is now
            runs.write_text(folder / runs.VOCAB, vocab.to_json())
        reports = trainer.run()
    if lost := [f"seed {r['starts'][-1]['seed']} at step {r['diverged']}" for r in reports if "diverged" in r]:
        of_all = "1 seed" if len(reports) == 1 else f"{len(reports)} seeds"
        raise RunError(
            f"the loss is no longer a number: {', '.join(lost)} of {of_all}; lower train.learning_rate or align.noise. "
            f"Reports are in {out}"
        )
    if failed := sum(report["failed"] for report in reports):
        raise RunError(
            f"{failed} of {len(reports)} seeds stayed below {config.train.restart_below} % on the training data in all "
            f"their starts; their reports are in {out}"
        )
    return reports


@dataclass
class Run:
    """One seed's way through training."""

    config: Config
    folder: Path
    start: int = 0  # how often it was started again
    began: int = 0  # the step at which this start began
    failed: list[dict[str, Any]] = field(default_factory=list)  # starts that ended below the threshold
    exhausted: bool = False  # the last start that it may have is below the threshold, too
    best: dict[str, Any] | None = None  # step and exact match on dev of the weights that are to be kept
    report: dict[str, Any] | None = None  # once it is finished

    @property
    def seed(self) -> int:
        return self.config.train.seed + 1_000_000 * self.start  # a restart's seed is no other run's first seed

    def log(self, step: int, line: dict[str, Any]) -> None:
        with (self.folder / runs.METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"start": self.start, "step": step - self.began, **line}) + "\n")


class Trainer:
    def __init__(
        self,
        configs: Sequence[Config],
        source: Source,
        splits: dict[str, list[Example]],
        vocab: Vocabulary,
        folders: Sequence[Path],
        state: Path,
        resume: bool = False,
        of_each: Sequence[list[Example]] = (),
    ) -> None:
        """of_each: the training examples of every seed, where their alignments differ."""
        if configs[0].train.keep == "best" and "dev" not in source.splits:
            raise DataError(
                f"train.keep = best needs a dev split, and {source.name} has none; add one, or keep the last"
            )
        self.of_each = of_each
        self.config, self.source, self.splits, self.vocab, self.state = configs[0], source, splits, vocab, state
        new = self._new_examples(splits["train"])
        if vocab.leaving:  # what has edges as no given node has could not be said of it
            new = [example for example in new if vocab.knows_valencies(example.graph)]
        examples, self.new_sentences = [*splits["train"], *new], len(new)
        self.runs = [Run(config, folder) for config, folder in zip(configs, folders, strict=True)]
        train, self.device = self.config.train, choose_device(self.config.train.device)
        objective = self._objective(examples)
        buckets = objective.data.buckets
        longest = train.steps * (1 + (train.restarts if train.restart_below else 0))
        self.schedule = Schedule(buckets, train.batch, longest)
        self.step, self.loss_steps, self.seconds = 0, 0, 0.0
        self.data = fingerprint_of_all(splits)
        self.progress = Progress(train.steps)
        self.interrupted: Callable[[], bool] = bool
        bf16 = uses_bf16(train.precision, self.device)
        seeds, model = len(self.runs), self._new_model(0)
        memory.check_training(self.config, model, buckets, len(examples), seeds, self.device, bf16)
        self.engine = Engine(
            self._new_model, [run.seed for run in self.runs], objective, train.clip, self.device, bf16=bf16
        )
        if resume:
            if state.is_file():
                self._restore()
            for run in self.runs:
                self._forget_later_metrics(run)

    def _new_examples(self, given: list[Example]) -> list[Example]:
        wanted = wanted_examples(self.config, given)
        if not wanted:
            return []
        with Progress(wanted) as progress:
            progress.say(f"making new training sentences of {len(given):,} given ones")
            progress.begin(0, "new sentences")
            return more_examples(self.config, given, progress.update)

    def _objective(self, examples: list[Example]) -> Objective:
        model = self.config.model
        if model.kind == "seq2seq":
            written_as = spelling(self.source.formalism, self.config.data.form)
            return FormObjective(pack_forms(examples, self.vocab, written_as, model.longest_form, self.device))
        encoder = pretrained.load(model.pretrained) if model.pretrained else None
        alike = self.config.align.variables == "alike"
        data = pack(examples, self.vocab, model.graph_layers, self.device, encoder, alike)
        first = self._first_alignments(examples, data.batch.alignment)
        if not self.config.train.unknown:
            return GraphObjective(data, self.config.align, first, len(self.runs))
        forget = Forget(examples, self.vocab, self.config.train.unknown, self.device)
        return GraphObjective(data, self.config.align, first, len(self.runs), forget)

    def _new_model(self, seed: int) -> LAGr | Seq2Seq:
        torch.manual_seed(seed)
        return build(self.config, self.vocab)

    def run(self) -> list[dict[str, Any]]:
        train = self.config.train
        began = time.monotonic() - self.seconds
        with self.progress as progress, _interruptible() as interrupted:
            self.interrupted = interrupted
            if self.new_sentences:
                progress.say(f"{self.new_sentences:,} new training sentences, made of the given ones")
            progress.begin(self._behind, self._title())
            for run in self.runs:
                if self.step == run.began:
                    run.log(self.step, {"event": "start", "seed": run.seed})
            while not self._all_finished():
                self._take_step()
                self.seconds = time.monotonic() - began
                if self.step % LOG_EVERY == 0 or any(map(self._has_ended, self.runs)):
                    loss = self._log_losses()
                    if loss is not None:
                        progress.update(self._behind, loss, train.batch * len(self.runs))
                found_better = [self._look_at(s, run, progress) for s, run in enumerate(self.runs) if not run.report]
                # A resumed run must not compare with a best model that is no longer there; one that has ended is
                # evaluated next, and that may be broken off.
                due = any(found_better) or any(map(self._has_ended, self.runs)) or self.step % train.save_every == 0
                if interrupted() or due:
                    self._save()
                if interrupted():
                    raise StoppedError(f"stopped at step {self.step}; everything is saved: go on with --resume")
        for leftover in (self.state, *(run.folder / runs.BEST for run in self.runs)):
            leftover.unlink(missing_ok=True)
        if interrupted():  # too late for this run, and in time for whatever would come after it
            raise KeyboardInterrupt
        return [run.report for run in self.runs if run.report]

    @property
    def _behind(self) -> int:
        """How many steps the run has taken that has most of them before it."""
        return min((self.step - run.began for run in self.runs if not run.report), default=self.config.train.steps)

    def _has_ended(self, run: Run) -> bool:
        """Whether a run takes no more steps, and has no report yet."""
        return not run.report and (run.exhausted or self.step - run.began == self.config.train.steps)

    def _all_finished(self) -> bool:
        """Finishes the runs that have just ended."""
        for s, run in enumerate(self.runs):
            if self._has_ended(run):
                self._finish(s, run, failed=run.exhausted)
        return all(run.report for run in self.runs)

    def _take_step(self) -> None:
        train = self.config.train
        own = np.array([self.step - run.began for run in self.runs])
        rates = [
            0.0 if run.report else learning_rate(int(step), train.steps, train.warmup, train.learning_rate)
            for run, step in zip(self.runs, own, strict=True)
        ]
        rows = self.schedule.rows(self.step, [run.seed for run in self.runs])
        bucket = self.schedule.bucket(self.step)
        self.engine.step(bucket, rows, own, np.array(rates), held=own < self.config.align.hold)
        self.step += 1
        self.loss_steps += 1

    def _look_at(self, s: int, run: Run, progress: Progress) -> bool:
        """What is due for a run after this step: an evaluation, a restart. Whether a better model was written."""
        train, own, found_better = self.config.train, self.step - run.began, False
        on_the_way = train.evaluate_every and own % train.evaluate_every == 0 and 0 < own < train.steps
        if "dev" in self.source.splits and (on_the_way or (train.keep == "best" and own == train.steps)):
            score = self._evaluate(self._parser(s), "dev", train.evaluate_limit).score
            found_better = train.keep == "best" and (run.best is None or score.exact > run.best["exact"])
            if found_better:
                run.best = {"step": own, "exact": score.exact}
                runs.write_tensors(run.folder / runs.BEST, self.engine.weights_of(s), run.best)
            run.log(self.step, {"split": "dev", "exact": score.exact})
            progress.say(f"seed {run.seed}, step {own}: {score.exact:.1f} % exact on {score.n} sentences of dev")
        if train.restart_below and own == max(1, round(train.steps * train.restart_after)) and self._too_low(s, run):
            self._start_again(run, s, f"training accuracy {run.failed[-1]['train_exact']:.1f} % is too low")
        return found_better

    def _title(self) -> str:
        open_runs = [run for run in self.runs if not run.report] or self.runs
        restarts = sum(run.start for run in self.runs)
        title = f"seed {open_runs[0].seed}" if len(open_runs) == 1 else f"{len(open_runs)} seeds"
        return title + (f", {restarts} restart{'s' if restarts > 1 else ''}" if restarts else "")

    # Restarts: the paper relaunches weakly supervised runs that don't fit their training data.

    def _start_again(self, run: Run, s: int, why: str) -> None:
        run.start, run.began, run.best = run.start + 1, self.step, None
        self.engine.reset(s, run.seed)
        run.log(self.step, {"event": "start", "seed": run.seed})
        self.progress.say(f"{why}: starting again, seed {run.seed}")
        self.progress.begin(0, self._title())

    def _too_low(self, s: int, run: Run) -> bool:
        ends = self.step - run.began == self.config.train.steps
        parser = self._parser(s, self._kept_weights(s, run) if ends else None)
        exact = self._evaluate(parser, "train").score.exact
        run.log(self.step, {"split": "train", "exact": exact})
        if exact >= self.config.train.restart_below:
            return False
        if run.start >= self.config.train.restarts:
            run.exhausted = True
            return False
        run.failed.append(self._outcome(run, exact, kept=False))
        return True

    def _outcome(self, run: Run, exact: float, kept: bool) -> dict[str, Any]:
        """Of the start of a run that ends here."""
        return {"seed": run.seed, "steps": self.step - run.began, "train_exact": exact, "kept": kept}

    def _diverged(self, s: int, run: Run) -> None:
        """A loss is no longer a number: this start has failed, and there is no model. The other runs go on."""
        why = f"seed {run.seed}: the loss is no longer a number at step {self.step - run.began}"
        if self.config.train.restart_below and run.start < self.config.train.restarts:
            run.failed.append(self._outcome(run, 0.0, kept=False))
            self._start_again(run, s, why)
            return
        self.progress.say(why)
        results = {}
        for split in self.source.splits:
            examples = self._sample(split)
            results[split] = evaluate(examples, [Graph(())] * len(examples), None, split).to_dict()
        self._report(run, results, failed=True, diverged=self.step - run.began)
        self.engine.reset(s, run.seed)  # what is no number would be computed with until the others have ended

    # Evaluation and the files of a run.

    def _evaluate(
        self, parser: AnyParser, split: str, limit: int | None = None, progress: Callable[[int], None] | None = None
    ) -> Evaluation:
        return evaluate_parser(parser, self._sample(split, limit), split, progress or (lambda done: None))

    def _sample(self, split: str, limit: int | None = None) -> list[Example]:
        """What of a split is evaluated: all, or so many sentences of it; of train never all."""
        examples = self.splits[split]
        limit = limit or (self.config.train.evaluate_limit if split == "train" else None)
        if limit and limit < len(examples):
            chosen = np.random.default_rng(0).choice(len(examples), limit, replace=False)
            examples = [examples[i] for i in sorted(chosen)]
        return examples

    def _watched(self, run: Run, split: str) -> Callable[[int], None]:
        """Shows how far the last evaluation is, and breaks it off where the run is to stop: it is made again then."""
        self.progress.begin(0, f"seed {run.seed}, {split}", len(self._sample(split)), aside=True)

        def parsed(done: int) -> None:
            if self.interrupted():
                raise StoppedError("stopped while it was evaluated; go on with --resume")
            self.progress.update(done)

        return parsed

    def _parser(self, s: int, weights: dict[str, Tensor] | None = None) -> AnyParser:
        """The parser that a run is so far, or that has other weights."""
        model = build(self.config, self.vocab)
        model.load_state_dict(self.engine.weights_of(s) if weights is None else weights)
        return parser_of(model, self.vocab, self.source.formalism, self.config, self.device)

    def _kept_weights(self, s: int, run: Run) -> dict[str, Tensor]:
        """The last weights, or those that were best on dev where these are to be kept."""
        return runs.read_tensors(run.folder / runs.BEST)[0] if run.best else self.engine.weights_of(s)

    def _finish(self, s: int, run: Run, failed: bool) -> None:
        weights = self._kept_weights(s, run)
        parser = self._parser(s, weights)
        runs.write_tensors(run.folder / runs.MODEL, weights)
        objective = self.engine.objective
        if isinstance(objective, GraphObjective) and self.config.align.supervision == "weak":
            given = objective.alignments[s][: len(self.splits["train"])]  # without those of new sentences
            runs.write_tensors(run.folder / runs.ALIGNMENTS, {"alignments": given})
        # Nothing that is reported of CFQ's MCD splits may come from their dev; whoever wants it has `lagr calibrate`.
        mcd = self.config.data.partition.startswith("mcd")
        if len(self.splits.get("dev", ())) >= FEWEST and not mcd and not failed:
            runs.write_json(run.folder / confidence.FILE, calibrate(parser, self.splits["dev"], "dev"))
        splits = self.source.splits
        results = {split: self._evaluate(parser, split, None, self._watched(run, split)).to_dict() for split in splits}
        self._report(run, results, failed)
        self.progress.begin(self._behind, self._title(), self.config.train.steps)

    def _report(self, run: Run, results: dict[str, Any], failed: bool, **more: Any) -> None:
        run.report = {
            "lagr": __version__,
            "config": run.config.to_dict(),
            "data": self.data,
            "failed": failed,
            "starts": [*run.failed, self._outcome(run, results["train"]["exact"], kept=not failed)],
            "seconds": round(self.seconds, 1),
            "seeds_at_once": len(self.runs),
            "machine": machine(self.device),
            "parameters": sum(p.numel() for p in self.engine.model.parameters()) // len(self.runs),
            **({"best_on_dev": run.best} if run.best else {}),
            **more,
            "evaluation": results,
        }
        runs.write_json(run.folder / runs.REPORT, run.report)

    def _log_losses(self) -> float | None:
        losses: list[float] = (self.engine.loss_sums / max(1, self.loss_steps)).tolist()
        self.engine.loss_sums.zero_()
        self.loss_steps = 0
        train, numbers = self.config.train, []
        for s, (run, loss) in enumerate(zip(self.runs, losses, strict=True)):
            if run.report:
                continue
            if not math.isfinite(loss):
                self._diverged(s, run)
                continue
            numbers.append(loss)
            rate = learning_rate(self.step - run.began - 1, train.steps, train.warmup, train.learning_rate)
            run.log(self.step, {"loss": loss, "learning_rate": rate, "seconds": round(self.seconds, 2)})
        return sum(numbers) / len(numbers) if numbers else None

    # Checkpoints.

    def _save(self) -> None:
        ways = [{key: getattr(run, key) for key in PROGRESS} for run in self.runs]
        note = {"step": self.step, "loss_steps": self.loss_steps, "seconds": self.seconds, "runs": ways}
        runs.write_tensors(self.state, self.engine.state(), note)

    def _restore(self) -> None:
        tensors, note = runs.read_tensors(self.state)
        try:
            self.engine.load_state(tensors)
            self.step, self.loss_steps, self.seconds = note["step"], note["loss_steps"], note["seconds"]
            for run, way in zip(self.runs, note["runs"], strict=True):
                for key, value in way.items():
                    setattr(run, key, value)
        except (KeyError, ValueError):
            raise RunError(
                f"{self.state} was saved with other data or other seeds; resume with those, or train again"
            ) from None

    def _forget_later_metrics(self, run: Run) -> None:
        """Drops the lines that were written after the checkpoint: those steps will be taken again."""
        path = run.folder / runs.METRICS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        kept = []
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # the line being written when the run was killed
            if self.step and (entry["start"], entry["step"]) <= (run.start, self.step - run.began):
                kept.append(line + "\n")
        if lines:
            runs.write_text(path, "".join(kept))

    def _first_alignments(self, examples: list[Example], known: Tensor) -> Tensor:
        """What is given   (examples, J), or (seeds, examples, J) where every seed has its own
        or what weak supervision remembers at first: nothing, or the guess from counts.   (examples, J)"""

        def table(found: Iterable[Sequence[int]]) -> Tensor:
            first = torch.full_like(known, -1)
            for row, slots in enumerate(found):
                first[row, : len(slots)] = torch.tensor(slots)
            return first

        if self.of_each:
            return torch.stack([table(example.graph.slots or () for example in of_one) for of_one in self.of_each])
        align = self.config.align
        if align.supervision == "strong":
            return known
        if align.start == "association":
            layers = self.config.model.graph_layers
            return table(associated_alignments(as_counted(self.config, examples), layers, self.vocab.is_copied))
        return table(())


def learning_rate(step: int, steps: int, warmup: int, peak: float) -> float:
    """Rises linearly over the warm-up, then falls linearly to 0 at the last step."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (steps - step) / max(1, steps - warmup)


def _difference(saved: Config, given: Config) -> str:
    one, other = saved.to_dict(), given.to_dict()
    section, key = next((s, k) for s in one for k in one[s] if one[s][k] != other[s][k])
    return f"{section}.{key} is {one[section][key]!r}, not {other[section][key]!r},"


@contextmanager
def _interruptible() -> Iterator[Any]:
    """Lets the step under way finish when Ctrl-C or SIGTERM comes; Ctrl-C after that stops at once. SIGTERM does not:
    `timeout` and queues of clusters send one to a process and one to its group."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked and number == signal.SIGINT:
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
