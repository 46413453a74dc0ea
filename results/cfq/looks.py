"""What the checkpoint of a run that is best on dev has on test: the published code tests that one, of all its looks.

python results/cfq/looks.py keep RUN STATES             while `lagr train … --out RUN --seeds N` goes on
python results/cfq/looks.py best RUN STATES DATA        when it is over; DATA/cfq is what it was trained on

keep: writes the weights of every checkpoint of the run into STATES, until the run is over. There has to be one at every
look, that is `train.save_every` as `train.evaluate_every`, and several seconds between two. best: prints a line of JSON
for every seed. looks: exact match at every look, on the 1,000 questions of dev that it takes, and at the end; step:
that of the best one, the first where there are several; test, test_blind: what that one has on all of test; last,
last_blind: what the last one has. On MCD's splits nothing may be chosen by that: it is how the published code chooses,
and what that is worth.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from lagr import runs
from lagr.datasets import open_source
from lagr.errors import LagrError, RunError
from lagr.supervision import training_examples
from lagr.train import Trainer


def keep(run: Path, states: Path) -> None:
    states.mkdir(exist_ok=True)
    one = run / ".kept"  # beside the checkpoint: a link can't lead to another disk
    while not (run / runs.STATE).exists() and not list(run.rglob(runs.REPORT)):
        time.sleep(1)
    while not all((folder / runs.REPORT).exists() for folder in runs.with_seeds([run])):
        time.sleep(1)
        with suppress(FileNotFoundError):  # there is none yet, or the run is over
            one.unlink(missing_ok=True)
            os.link(run / runs.STATE, one)  # while it is read, the run may write the next
            tensors, note = runs.read_tensors(one)
            kept = states / f"{note['step']}.safetensors"
            if not kept.exists():
                runs.write_tensors(kept, {name: table for name, table in tensors.items() if name.startswith("values.")})
    one.unlink(missing_ok=True)


def best(run: Path, states: Path, data: str) -> None:
    folders = runs.with_seeds([run])
    configs = [runs.read_config(folder)[0] for folder in folders]
    train = configs[0].train
    if not train.evaluate_every:
        raise RunError("a run without looks: train.evaluate_every is 0")
    if train.restart_below:
        raise RunError("a run with restarts has several starts, whose looks are counted anew")
    needed = range(train.evaluate_every, train.steps, train.evaluate_every)
    if missing := [step for step in needed if not (states / f"{step}.safetensors").exists()]:
        raise RunError(f"{states} lacks the weights of steps {', '.join(map(str, missing))}")
    source = open_source("cfq", data, configs[0].data.partition, 0, 0)
    splits = {split: source.read(split) for split in ("dev", "test")}
    splits["train"] = training_examples(configs[0], source)
    trainer = Trainer(configs, source, splits, runs.read_vocab(folders[0]), folders, states)
    for s, folder in enumerate(folders):
        lines = map(json.loads, (folder / runs.METRICS).read_text().splitlines())
        looks = {line["step"]: line["exact"] for line in lines if line.get("split") == "dev"}
        end = trainer._parser(s, runs.read_tensors(folder / runs.MODEL)[0])
        looks[train.steps] = trainer._evaluate(end, "dev", train.evaluate_limit).score.exact
        step = max(looks, key=lambda step: (looks[step], -step))
        chosen = end
        if step != train.steps:
            weights = runs.read_tensors(states / f"{step}.safetensors")[0]
            for number, table in enumerate(trainer.engine.tables):
                table.values.copy_(weights[f"values.{number}"])
            chosen = trainer._parser(s)
        test = trainer._evaluate(chosen, "test").to_dict()
        last = json.loads((folder / runs.REPORT).read_text())["evaluation"]["test"]
        told = {"step": step, "test": round(test["exact"], 1), "test_blind": round(test["blind"], 1)}
        told |= {"last": round(last["exact"], 1), "last_blind": round(last["blind"], 1)}
        print(json.dumps({"seed": configs[s].train.seed, **told, "looks": list(looks.values())}), flush=True)


def main(verb: str, run: str, states: str, *data: str) -> None:
    {"keep": keep, "best": best}[verb](Path(run), Path(states), *data)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except LagrError as error:
        sys.exit(f"looks: {error}")
