"""`lagr search`: what is searched, on what it is decided, and that a killed search goes on."""

from __future__ import annotations

import json
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lagr import config, processes, runs, search
from lagr.cli import main
from lagr.errors import ConfigError, RunError

optuna = pytest.importorskip("optuna")

TINY = ("--data.size", "80", "--model.width", "16", "--model.encoder_layers", "1", "--train.steps", "60", "--train.batch", "16",
        "--align.hold", "0", "--align.start", "model", "--train.evaluate_every", "0", "--train.save_every", "5")  # fmt: skip


def command(out: Path, *more: str) -> list[str]:
    return ["search", "quickstart", "--trials", "2", "--out", str(out), *TINY, *more]


def trials(out: Path) -> list[Any]:
    backend = optuna.storages.journal.JournalFileBackend(str(out / "journal.log"))
    return optuna.load_study(study_name="quickstart", storage=optuna.storages.JournalStorage(backend)).trials


def test_a_killed_search_goes_on_with_its_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "lagr.cli", *command(tmp_path)], stderr=subprocess.DEVNULL)
    state = tmp_path / "trial-0" / runs.STATE
    while not state.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (killed,) = trials(tmp_path)
    assert state.exists() and killed.state.name == "RUNNING"

    assert main(command(tmp_path)) == 0
    out, err = capsys.readouterr()
    failed, again, second = trials(tmp_path)
    assert failed.state.name == "FAIL" and again.params == killed.params and again.user_attrs["folder"] == "trial-0"
    assert second.user_attrs["folder"] == "trial-2" and "best of 2" in err
    assert set(again.params) == {"train.learning_rate", "model.dropout", "model.heads"}  # the rest is given
    best = config.load(str(tmp_path / "best.toml"))
    assert out.strip() == config.to_toml(best).strip() and best.model.width == 16
    assert {best.train.learning_rate, best.model.dropout} <= {*again.params.values(), *second.params.values()}

    # Nothing but train and dev was looked at.
    report = json.loads((tmp_path / "trial-0" / "seed-0" / runs.REPORT).read_text())
    assert set(report["evaluation"]) == {"train", "dev"}
    assert again.value == report["evaluation"]["dev"]["exact"]

    assert main(command(tmp_path)) == 0 and len(trials(tmp_path)) == 3  # all trials are there: none is run
    capsys.readouterr()
    assert main(command(tmp_path, "--train.clip", "2")) == 1
    assert "was begun with other settings" in capsys.readouterr().err


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a search that had one trial, which could not be trained; nothing is trained in any other either."""

    def train_batch(settings: config.Config, *rest: Any) -> None:
        raise RunError("the loss is no longer a number")

    monkeypatch.setattr(search, "train_batch", train_batch)
    with pytest.raises(RunError, match="none of the 1 trials could be trained"):
        search.search("quickstart", (), tmp_path / "journal.log", tmp_path, 1)
    return tmp_path


def test_settings_that_cannot_be_trained_are_passed_over(shared: Path) -> None:
    with pytest.raises(RunError, match="none of the 2 trials could be trained"):
        search_again(shared)
    assert states(shared) == ["PRUNED", "PRUNED"]


def begin_elsewhere(folder: Path, process: str) -> None:
    """A trial of another process, which has got no further than to say so, if that far."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "journal.log"))
    study = optuna.load_study(study_name="quickstart", storage=optuna.storages.JournalStorage(backend))
    trial = study.ask()
    if process:
        trial.set_user_attr("process", process)


def states(folder: Path) -> list[str]:
    return [trial.state.name for trial in trials(folder)]


def search_again(folder: Path) -> None:
    search.search("quickstart", (), folder / "journal.log", folder, 2)


def test_a_trial_that_another_process_is_at_is_not_begun_again(shared: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = f"{platform.node()} {other.pid}"
        begin_elsewhere(shared, name)
        with pytest.raises(
            RunError, match=f"no trial has a result yet; 1 of 2 trials still with {re.escape(name)}: call"
        ):
            search_again(shared)
        assert states(shared) == ["PRUNED", "RUNNING"]
        other.kill()
    with pytest.raises(RunError, match="none of the 2 trials could be trained"):
        search_again(shared)
    assert states(shared) == ["PRUNED", "FAIL", "PRUNED"]


def test_a_trial_that_was_begun_just_now_has_somebody_at_it(shared: Path) -> None:
    begin_elsewhere(shared, "")
    with pytest.raises(RunError, match="still with a new process"):
        search_again(shared)
    assert states(shared) == ["PRUNED", "RUNNING"]


def test_a_trial_that_is_taken_up_twice_keeps_its_settings(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They belong to the folder, which has a checkpoint."""
    monkeypatch.setattr(search, "NAMED_AFTER", -1)
    settings = {"train.learning_rate": 0.004, "train.batch": 64, "model.dropout": 0.4, "model.width": 256,
                "model.encoder_layers": 2, "model.heads": 8}  # fmt: skip
    backend = optuna.storages.journal.JournalFileBackend(str(shared / "journal.log"))
    study = optuna.load_study(study_name="quickstart", storage=optuna.storages.JournalStorage(backend))
    study.enqueue_trial(settings, user_attrs={"folder": "trial-7"})
    begin_elsewhere(shared, "")
    with pytest.raises(RunError, match="none of the 2 trials could be trained"):
        search_again(shared)
    last = trials(shared)[-1]
    assert states(shared) == ["PRUNED", "FAIL", "PRUNED"]
    assert last.params == settings and last.user_attrs["folder"] == "trial-7"


def test_the_best_of_those_that_are_over_is_said_with_those_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"seconds": 1.0, "evaluation": {"dev": {"exact": 50.0}}}
    monkeypatch.setattr(search, "train_batch", lambda *rest: None)
    monkeypatch.setattr(search, "read_reports", lambda folder: [report])
    search.search("quickstart", (), tmp_path / "journal.log", tmp_path, 2)
    begin_elsewhere(tmp_path, "elsewhere 1")
    said: list[str] = []
    search.search("quickstart", (), tmp_path / "journal.log", tmp_path, 1, say=said.append)
    assert said[0].startswith("1 of 3 trials still with elsewhere 1: ") and "--trials 4 makes up" in said[0]
    assert said[1].startswith("best of 2: ")


def test_a_trial_of_another_machine_is_not_known_to_have_ended(shared: Path) -> None:
    begin_elsewhere(shared, "elsewhere 1")
    with pytest.raises(RunError, match=r"where there is no such process, --trials 3 makes up for it"):
        search_again(shared)
    assert states(shared) == ["PRUNED", "RUNNING"]


@pytest.mark.parametrize("process", ["", processes.this_process()], ids=["no name", "this process"])
def test_a_trial_that_nobody_can_be_at_is_run_again(
    process: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was killed before it had said its name, or is this one, which is not at any when it asks."""
    begin_elsewhere(shared, process)
    monkeypatch.setattr(search, "NAMED_AFTER", -1)
    with pytest.raises(RunError, match="none of the 2 trials could be trained"):
        search_again(shared)
    assert states(shared) == ["PRUNED", "FAIL", "PRUNED"]


def test_a_trial_whose_process_ends_meanwhile_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_batch(settings: config.Config, source: Any, batch: Any) -> None:
        if batch.folder.name == "trial-0":
            process = subprocess.Popen([sys.executable, "-c", ""])
            begin_elsewhere(tmp_path, f"{platform.node()} {process.pid}")
            process.wait()
        raise RunError("the loss is no longer a number")

    monkeypatch.setattr(search, "train_batch", train_batch)
    with pytest.raises(RunError, match="none of the 2 trials could be trained"):
        search_again(tmp_path)
    assert states(tmp_path) == ["PRUNED", "FAIL", "PRUNED"]


def test_a_trial_whose_loss_is_no_number_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, "--train.learning_rate", "1e30", "--train.clip", "0")) == 1
    assert "none of the 2 trials could be trained" in capsys.readouterr().err and not (tmp_path / "best.toml").exists()
    assert [trial.state.name for trial in trials(tmp_path)] == ["PRUNED", "PRUNED"]


def test_values_that_do_not_fit_what_is_given_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_batch(settings: config.Config, *rest: Any) -> None:
        raise RunError("these fit")

    monkeypatch.setattr(search, "train_batch", train_batch)
    said: list[str] = []
    given = (
        ("model", "width", 24),
        ("data", "name", "mini"),
        ("data", "size", 300),
    )  # 24 is a multiple of 4, not of 16
    with pytest.raises(RunError, match="none of the 12 trials"):
        search.search(
            "cogs-strong-transformer-sh", given, tmp_path / "journal.log", tmp_path, 12, say=said.append
        )  # fmt: skip
    assert {line.rsplit(": ", 1)[1] for line in said} == {"these fit", "model.width 24 must be a multiple of 2 · model.heads, 16"}  # fmt: skip


@pytest.mark.parametrize("journal", ["hello", '{"op": 5}\n', '{"op_code": 0, "worker_id": "x'])
def test_a_damaged_journal_is_one_clear_line(tmp_path: Path, journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal.log").write_text(journal + "\n")
    assert main(command(tmp_path)) == 1
    err = capsys.readouterr().err
    assert "is no journal of a search, or is damaged" in err and err.count("\n") == 1


def test_a_trial_that_another_process_has_taken_up_is_left_to_it() -> None:
    class Study:
        enqueued = 0

        def get_trials(self, states: object) -> list[SimpleNamespace]:
            return [SimpleNamespace(number=0, params={}, user_attrs={"process": "elsewhere 1"}), self.dead()]

        def dead(self) -> SimpleNamespace:
            process = subprocess.Popen([sys.executable, "-c", ""])
            process.wait()
            return SimpleNamespace(number=1, params={}, user_attrs={"process": f"{platform.node()} {process.pid}"})

        def tell(self, number: int, state: object) -> None:
            assert number == 1
            raise ValueError("Cannot tell a FAIL trial.")

        def enqueue_trial(self, *more: object, **others: object) -> None:
            self.enqueued += 1

    study = Study()
    search._take_up_again(study, optuna)
    assert not study.enqueued


def test_what_is_searched_is_the_papers_grid() -> None:
    strong, lstm, cfq = (config.load(name) for name in ("cogs-strong-transformer-sep", "cogs-strong-lstm-sep", "cfq-weak-transformer-sh-k1"))  # fmt: skip
    assert set(search.space(strong, set(), False)) == {
        "train.learning_rate", "train.batch", "model.dropout", "model.width", "model.encoder_layers", "model.heads"
    }  # fmt: skip
    assert "model.heads" not in search.space(lstm, set(), False)
    assert "model.width" not in search.space(strong, {"model.width"}, False)
    assert {"train.warmup", "model.encoders"} <= search.space(cfq, set(), False).keys()
    assert "model.encoders" not in search.space(strong, set(), False)
    assert "model.encoders" not in search.space(config.load("cfq-seq2seq-transformer"), set(), False)
    assert set(search.space(cfq, set(), True)) == {"align.candidates", "align.noise"}
    with pytest.raises(ConfigError, match="strongly supervised"):
        search.space(strong, set(), True)
    with pytest.raises(ConfigError, match="seq2seq model, which has no alignments"):
        search.space(config.load("cogs-seq2seq-lstm"), set(), True)
    # What the paper found best is in its own grid.
    for settings in (strong, lstm, cfq):
        for name, values in search.space(settings, set(), False).items():
            section, key = name.split(".")
            assert getattr(getattr(settings, section), key) in values, name


def test_cfq_is_searched_on_the_random_split_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_source(name: str, data: Any, partition: str, *more: Any) -> Any:
        opened.append((name, partition))
        raise ConfigError("enough")

    monkeypatch.setattr(search, "open_source", open_source)
    with pytest.raises(ConfigError, match="enough"):
        search.search("cfq-weak-transformer-sh-k1", (), tmp_path / "journal", tmp_path, 1)
    assert opened == [("cfq", "random_split")]


def test_without_optuna_it_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(command(tmp_path)) == 1
    assert capsys.readouterr().err == "lagr: the search needs optuna; pip install 'lagr[search]'\n"
