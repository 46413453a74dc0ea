"""`lagr search PRESET`: the paper's grids, searched by optuna, and the best configuration as TOML.

Every trial is written to a journal file, which several processes may share, on one machine or on many. A search that
was killed goes on where it was, its trials with their checkpoints. What is best is decided on dev alone, of COGS or of
CFQ's random split; gen and the MCD splits are not even evaluated. (The paper chose on 1,000 sentences of COGS' gen.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

from lagr import config, runs
from lagr.config import Config
from lagr.datasets import open_source
from lagr.errors import ConfigError, DataError, RunError, StoppedError
from lagr.processes import is_gone, this_process
from lagr.reproduce import Batch, read_reports, train_batch

Space = dict[str, list[Any]]
NAMED_AFTER = 60  # seconds at most until a trial that was begun has the name of its process

# The paper's appendix, "COGS Hyperparameter Tuning" and "CFQ Hyperparameter Tuning".
GRIDS: dict[str, Space] = {
    "cogs": {
        "train.learning_rate": [0.0001, 0.0004, 0.001, 0.004],
        "train.batch": [64, 128, 256],
        "model.dropout": [0.1, 0.4],
        "model.width": [256, 512],
    },
    "cfq": {
        "train.learning_rate": [0.0001, 0.0004, 0.0006, 0.0008, 0.001],
        "train.warmup": [0, 1000, 5000],
        "train.batch": [64, 128, 256, 512],
        "model.dropout": [0.1, 0.4],
    },
    "transformer": {"model.encoder_layers": [2, 4], "model.heads": [4, 8]},
    "encoders": {"model.encoders": ["shared", "separate"]},  # on CFQ; on COGS they are rows of their own
    # Where alignments are inferred, the paper kept the rest as found before, and searched these two.
    "alignment": {"align.candidates": [1, 5, 10], "align.noise": [0.0, 0.001, 0.01, 0.1, 1.0, 10.0, 15.0, 20.0]},
}


def space(settings: Config, fixed: set[str], alignment: bool) -> Space:
    """What is searched for a configuration; what the command line sets is not."""
    if alignment and not settings.infers_alignments:
        kind = "strongly supervised" if settings.model.kind == "lagr" else "a seq2seq model, which has no alignments"
        raise ConfigError(f"--alignment searches K and σ of weak supervision; this preset is {kind}")
    if alignment:
        found = GRIDS["alignment"]
    else:
        found = GRIDS.get(settings.data.name, GRIDS["cogs"])
        if settings.model.encoder == "transformer":
            found = found | GRIDS["transformer"]
        if settings.model.kind == "lagr" and settings.data.name == "cfq":
            found = found | GRIDS["encoders"]
    return {key: values for key, values in found.items() if key not in fixed}


def search(
    preset: str,
    settings: tuple[tuple[str, str, Any], ...],
    journal: Path,
    out: Path,
    trials: int,
    seeds: int = 1,
    data: str | None = None,
    alignment: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Config:
    """Runs trials until the journal has that many, and returns the best configuration that it has."""
    optuna = _optuna()
    state = optuna.trial.TrialState
    wanted = config.override(config.load(preset), settings)
    choices = space(wanted, {f"{section}.{key}" for section, key, _ in settings}, alignment)
    base = config.override(wanted, [("data", "partition", "random_split")]) if wanted.data.name == "cfq" else wanted
    source = open_source(base.data.name, data, base.data.partition, base.data.size, base.data.seed)
    if "dev" not in source.splits:
        raise DataError(f"{source.name} has no dev split to choose on; add one")
    seen = replace(source, splits=("train", "dev"))  # so that nothing else can choose

    journal.parent.mkdir(parents=True, exist_ok=True)
    with _readable(journal):
        backend = optuna.storages.journal.JournalFileBackend(str(journal))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=preset,
            direction="maximize",
            load_if_exists=True,
        )
        _same_search(study, {"config": base.to_dict(), "seeds": seeds, "space": choices}, journal)

    def begun() -> int:
        """Trials that other processes are at count: else each of them would add one."""
        _take_up_again(study, optuna)
        return len(study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED, state.RUNNING)))

    def accuracy(trial: Any) -> float:
        folder = trial.user_attrs.get("folder", f"trial-{trial.number}")
        trial.set_user_attr("folder", folder)
        trial.set_user_attr("process", this_process())
        params = {key: trial.suggest_categorical(key, values) for key, values in choices.items()}
        try:
            chosen = _chosen(base, params)
        except ConfigError as error:  # as of heads that don't divide a width that was given
            raise RunError(str(error)) from None
        batch = Batch(out / folder, range(base.train.seed, base.train.seed + seeds))
        train_batch(chosen, seen, batch)
        reports = read_reports(batch.folder)
        if any("diverged" in report for report in reports):
            raise RunError("the loss is no longer a number")
        trial.set_user_attr("seconds", max(report["seconds"] for report in reports))
        return float(mean(report["evaluation"]["dev"]["exact"] for report in reports))

    while (known := begun()) < trials:
        trial = study.ask()
        try:
            exact = accuracy(trial)
        except StoppedError:
            raise
        except RunError as error:  # as when the loss is no longer a number: these settings are bad, others are not
            say(f"{trial.params}: {error}")
            study.tell(trial, state=state.PRUNED)
        else:
            say(f"{trial.params}: {exact:.2f} % exact on dev")
            study.tell(trial, exact)
    complete = study.get_trials(states=(state.COMPLETE,))
    running = study.get_trials(states=(state.RUNNING,))
    elsewhere = ", ".join(trial.user_attrs.get("process", "a new process") for trial in running)
    unfinished = (
        f"{len(running)} of {known} trials still with {elsewhere}: call again when over; "
        f"where there is no such process, --trials {known + len(running)} makes up for it"
    )
    if not complete:
        if running:
            raise RunError(f"no trial has a result yet; {unfinished}")
        raise RunError(f"none of the {trials} trials could be trained; allow more with --trials, or fix some settings")
    if running:
        say(unfinished)
    say(f"best of {len(complete)}: {study.best_trial.user_attrs['folder']}, {study.best_value:.2f} % exact on dev")
    best = _chosen(wanted, study.best_params)
    out.mkdir(parents=True, exist_ok=True)
    runs.write_text(out / "best.toml", config.to_toml(best))
    return best


def _chosen(base: Config, params: dict[str, Any]) -> Config:
    changes = [(key.split("."), value) for key, value in params.items()]
    return config.override(base, [(section, key, value) for (section, key), value in changes])


def _same_search(study: Any, wanted: dict[str, Any], journal: Path) -> None:
    """Trials of one journal compare only if they differ in nothing but what is searched."""
    if study.user_attrs.get("search", wanted) != wanted:
        raise ConfigError(f"{journal} was begun with other settings; give these, or another --journal")
    study.set_user_attr("search", wanted)


def _take_up_again(study: Any, optuna: Any) -> None:
    """Puts trials back in the queue that nobody is at any more, as far as this machine knows; their folder has the
    checkpoint. This process is at none when it asks."""
    state = optuna.trial.TrialState
    for trial in study.get_trials(states=(state.RUNNING,)):
        process = trial.user_attrs.get("process", "")
        nameless = not process and (datetime.now() - trial.datetime_start).total_seconds() > NAMED_AFTER
        if nameless or process == this_process() or is_gone(process):
            try:
                study.tell(trial.number, state=state.FAIL)
            except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
                continue  # another process that was started just now was faster
            folder = trial.user_attrs.get("folder", f"trial-{trial.number}")
            queued = trial.system_attrs.get("fixed_params", {})  # if it was taken up before, and got no further
            study.enqueue_trial(queued | trial.params, user_attrs={"folder": folder})


@contextmanager
def _readable(journal: Path) -> Iterator[None]:
    """A journal that was cut off, or is something else, is one line and not the error of a library."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AssertionError, AttributeError):
        raise RunError(
            f"{journal} is no journal of a search, or is damaged: if its last line was cut off, remove that line; "
            "else give another --journal"
        ) from None


def _optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError:
        raise ConfigError("the search needs optuna; pip install 'lagr[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
