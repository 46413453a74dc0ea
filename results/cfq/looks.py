"""What the checkpoint of a run that is best on dev has on test: the published code tests that one, of all its looks.

python results/cfq/looks.py keep RUN STATES             while `lagr train … --out RUN --seeds N` goes on
python results/cfq/looks.py best RUN STATES DATA        when it is over; DATA/cfq is what it was trained on

keep: gives every checkpoint of the run a second name, in STATES, until the run is over. There has to be one at every
look, that is `train.save_every` as `train.evaluate_every`. best: prints a line of JSON for every seed. looks: exact
match at every look, on the 1,000 questions of dev that it takes, and at the end; step: that of the best one, the first
where there are several; test, test_blind: what that one has on all of test; last: what the last one has. On MCD's
splits nothing may be chosen by that: it is how the published code chooses, and what that is worth.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import safetensors

from lagr import runs
from lagr.datasets import open_source
from lagr.supervision import training_examples
from lagr.train import Trainer


def keep(run: Path, states: Path) -> None:
    states.mkdir(exist_ok=True)
    new = states / "new"
    while not (run / "seed-0" / runs.REPORT).exists():
        time.sleep(1)
        new.unlink(missing_ok=True)
        try:
            os.link(run / runs.STATE, new)
        except FileNotFoundError:
            continue
        with safetensors.safe_open(new, framework="pt") as file:
            step = json.loads(file.metadata()["note"])["step"]
        new.replace(states / f"{step}.safetensors")


def best(run: Path, states: Path, data: str) -> None:
    folders = sorted(run.glob("seed-*"))
    configs = [runs.read_config(folder)[0] for folder in folders]
    train = configs[0].train
    source = open_source("cfq", data, configs[0].data.partition, 0, 0)
    splits = {split: source.read(split) for split in ("dev", "test")}
    splits["train"] = training_examples(configs[0], source)
    trainer = Trainer(configs, source, splits, runs.read_vocab(folders[0]), folders, states)
    for s, folder in enumerate(folders):

        def at(step: int, split: str, limit: int | None = None, s: int = s) -> dict[str, float]:
            trainer.state = states / f"{step}.safetensors"
            trainer._restore()
            found = trainer._evaluate(trainer._parser(s), split, limit).to_dict()
            return {name: round(found[name], 1) for name in ("exact", "blind")}

        lines = map(json.loads, (folder / runs.METRICS).read_text().splitlines())
        looks = {line["step"]: line["exact"] for line in lines if line.get("split") == "dev"}
        looks[train.steps] = at(train.steps, "dev", train.evaluate_limit)["exact"]
        step = max(looks, key=lambda step: (looks[step], -step))
        test = at(step, "test")
        evaluation = json.loads((folder / runs.REPORT).read_text())["evaluation"]["test"]
        last = {name: round(evaluation[name], 1) for name in test}
        told = {"step": step, "test": test["exact"], "test_blind": test["blind"], "last": last}
        print(json.dumps({"seed": configs[s].train.seed, **told, "looks": list(looks.values())}), flush=True)


if __name__ == "__main__":
    verb, run, states, *data = sys.argv[1:]
    if verb == "keep":
        keep(Path(run), Path(states))
    else:
        best(Path(run), Path(states), *data)
