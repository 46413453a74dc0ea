"""A run folder: everything a training run leaves behind, in files that need no code to be read.

config.toml             the whole configuration
vocab.json              words and labels
model.safetensors       the weights
metrics.jsonl           losses and evaluations, a line each
report.json             what came out: accuracies, every start with its seed, time, machine
state.safetensors       weights, optimizer, random state and alignments for --resume; gone when training is over
best.safetensors        with train.keep = best, the weights that were best on dev so far; gone when training is over
alignments.safetensors  the alignments that weak supervision settled on, after the last step
calibration.json        what makes probabilities trustworthy (see confidence.py), where there was a dev split
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lagr import __version__, named
from lagr.config import Config, from_dict, read_toml, to_toml
from lagr.errors import RunError
from lagr.vocab import Vocabulary

FORMAT = 2

CONFIG, VOCAB, MODEL, METRICS, REPORT = "config.toml", "vocab.json", "model.safetensors", "metrics.jsonl", "report.json"
STATE, BEST, ALIGNMENTS = "state.safetensors", "best.safetensors", "alignments.safetensors"


def check_free(folder: Path) -> None:
    """A run folder that holds anything is never written over."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise RunError(
            f"{folder} already holds files; give another folder with --out, or --resume a run that was stopped"
        )


def create(folder: Path) -> Path:
    """A new, empty run folder."""
    check_free(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} can't be created: {error.strerror}") from None
    return folder


def open_run(folder: str | Path) -> Path:
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        if seeds := sorted(folder.glob(f"seed-*/{CONFIG}")):
            raise RunError(f"{folder} holds the runs of several seeds; give one of them, such as {seeds[0].parent}")
        known = f"; models by name: {', '.join(named.names())}" if named.names() else ""
        raise RunError(f"{folder} is no run folder: there is no {CONFIG} in it{known}")
    return folder


def with_seeds(folders: Iterable[str | Path]) -> list[Path]:
    """The run folders; one that holds seeds stands for all of them."""
    found = []
    for folder in map(Path, folders):
        seeds = sorted(folder.glob(f"seed-*/{CONFIG}"), key=lambda file: (len(file.parent.name), file.parent.name))
        found += [file.parent for file in seeds] if seeds else [open_run(folder)]
    return found


def write_config(
    folder: Path, config: Config, formalism: str | None, data: str = "", why: Sequence[str] = (), encoder: str = ""
) -> None:
    """data, encoder: fingerprints of the training data and of the pretrained encoder, if there is one, so that nothing
    else can be taken for them later.

    why: reasons for the settings, one a line, as comments before them.
    """
    about = f'[about]\nformat = {FORMAT}\nlagr = "{__version__}"\nformalism = "{formalism or ""}"\ndata = "{data}"\n'
    about += f'encoder = "{encoder}"\n\n' if encoder else "\n"
    printable = ("".join(c if c.isprintable() else " " for c in line) for line in why)  # they may quote the data
    reasons = "".join(f"# {line}\n" for line in printable) + ("\n" if why else "")
    write_text(folder / CONFIG, reasons + about + to_toml(config))


def read_config(folder: Path) -> tuple[Config, str | None]:
    """The configuration of a run and its formalism."""
    raw = read_toml(folder / CONFIG)
    about = _about(raw)
    if about.get("format") != FORMAT:
        raise RunError(
            f"{folder} is of format {about.get('format')}, written by lagr {about.get('lagr', 'unknown')}; "
            f"this is lagr {__version__}, which reads format {FORMAT}: train it again, or use that version"
        )
    return from_dict(raw, str(folder / CONFIG)), about.get("formalism") or None


def read_fingerprint(folder: Path) -> str:
    """Of the data that a run was trained on."""
    return str(_about(read_toml(folder / CONFIG)).get("data", ""))


def read_encoder(folder: Path) -> str:
    """The fingerprint of the pretrained encoder that a run was trained with."""
    return str(_about(read_toml(folder / CONFIG)).get("encoder", ""))


def _about(raw: dict[str, Any]) -> dict[str, Any]:
    about = raw.get("about")
    return about if isinstance(about, dict) else {}


def read_vocab(folder: Path) -> Vocabulary:
    try:
        return Vocabulary.from_json((folder / VOCAB).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise RunError(f"{folder} has no readable {VOCAB}") from None


def read_weights(folder: Path, model: nn.Module) -> None:
    path = folder / MODEL
    if not path.is_file():
        hint = "training has not finished: go on with --resume" if (folder / STATE).is_file() else "train it again"
        raise RunError(f"{folder} has no {MODEL}; {hint}")
    tensors, _ = read_tensors(path)
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        raise RunError(f"{path} doesn't fit {CONFIG} and {VOCAB} beside it; the files are of different runs") from None


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_tensors(path: Path, tensors: dict[str, Tensor], note: dict[str, Any] | None = None) -> None:
    """Tensors, with a note beside them, whole or not at all: a run killed while saving keeps its last checkpoint."""
    partial = path.with_name(path.name + ".partial")
    host = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    partial.touch()
    mode = partial.stat().st_mode  # as for any new file; `save_file` would let no one else read it
    save_file(host, partial, metadata={"note": json.dumps(note or {})})
    partial.chmod(mode)
    partial.replace(path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {}).get("note", "{}"))
        return load_file(path), note
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise RunError(f"{path} can't be read ({error})") from None


def checksum(model: nn.Module) -> str:
    """Of all weights of a model: others, or others' names, have another one."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
