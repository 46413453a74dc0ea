"""Settings: five small frozen values, their defaults and what each means, and TOML files of them.

A run's configuration is a preset (or a TOML file), then `--section.key value` on top. Unknown keys and values of the
wrong kind are errors that name the nearest key.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lagr.errors import ConfigError

THREES = 'a list of threes, such as [["eat", "agent", "0-1"]]'

PRESETS = Path(__file__).parent / "presets"


def option(default: Any, help: str, choices: tuple[str, ...] = (), kind: str = "") -> Any:
    """kind: the kind of model that has this option, if not every one has it."""
    return field(
        default=default, metadata={"help": help + (f" ({kind})" if kind else ""), "choices": choices, "kind": kind}
    )


@dataclass(frozen=True)
class Data:
    name: str = option("mini", "cogs, cfq, mini, or the path of a .jsonl file or of a folder of them")
    partition: str = option("", "which of CFQ's splits: mcd1, mcd2, mcd3, random_split")
    size: int = option(4000, "how many training sentences mini generates")
    seed: int = option(0, "which sentences mini generates")
    copy: bool = option(False, "labels that are always a word of their sentence are copied from it", kind="lagr")
    recombine: float = option(
        0.0,
        "up to so many new training sentences for each given one, with phrases and lists of others in them",
        kind="lagr",
    )
    form: str = option("full", "forms as they are, or CFQ's queries compressed", ("full", "compressed"), kind="seq2seq")


@dataclass(frozen=True)
class Model:
    kind: str = option("lagr", "lagr labels a graph; seq2seq, the baseline, writes the form", ("lagr", "seq2seq"))
    encoder: str = option("transformer", "what encodes the sentence", ("transformer", "lstm"))
    encoders: str = option("separate", "one encoder for nodes and edges, or one each", ("shared", "separate"), "lagr")
    width: int = option(256, "D, the size of a token's vector")
    encoder_layers: int = option(4, "layers of the encoder")
    heads: int = option(4, "attention heads (transformer)")
    feedforward: int = option(0, "width of the feed-forward part (transformer); 0: the same as width")
    dropout: float = option(0.1, "dropout in the encoder, and in the decoder")
    graph_layers: int = option(1, "L, slots for every token", kind="lagr")
    positions: str = option("sine", "how the transformer knows positions", ("sine", "rotary"), kind="lagr")
    residual: float = option(
        1.0,
        "first size of what a layer adds (transformer); below 1, vectors at first say more of their word",
        kind="lagr",
    )
    reach: float = option(
        0.0,
        "parsing attends no further than this share of training sentences are long (transformer); 0: anywhere",
        kind="lagr",
    )
    valency: int = option(
        0, "also predict which edge labels leave a node and enter it, each counted up to so many; 0: don't", kind="lagr"
    )
    anonymous: int = option(
        0, "edges know a word that labels copy by its shape alone if training has it fewer times than this", kind="lagr"
    )
    twins: int = option(
        0,
        "of nodes with the same edges, so many tokens apart at most, the first stands for all; 0: each for itself",
        kind="lagr",
    )
    needs: int = option(
        0, "parses have the edges that all training nodes of a label have, if so many do; 0: the likeliest", kind="lagr"
    )
    pretrained: str = option(
        "", "a pretrained encoder, by name or folder, whose vectors are added to those of the words", kind="lagr"
    )
    edge_width: int = option(
        0, "width of an edge label's query and key; 0: D / edge labels, rounded up to 8, 16, …", kind="lagr"
    )
    decoder_layers: int = option(0, "layers of the decoder; 0: as many as the encoder has", kind="seq2seq")
    shared_layers: bool = option(False, "all layers have the same weights (Universal Transformer)", kind="seq2seq")
    longest_form: int = option(512, "tokens after which a form is broken off", kind="seq2seq")

    def options(self) -> dict[str, Any]:
        """What the model of this kind is built with, besides the sizes that its vocabulary and its encoder have."""
        own = [
            f
            for f in fields(self)
            if f.name not in ("kind", "reach", "valency", "anonymous", "twins", "needs", "pretrained")
        ]
        wanted = (f.name for f in own if f.metadata["kind"] in ("", self.kind))
        return {name: getattr(self, name) for name in wanted}


@dataclass(frozen=True)
class Align:
    supervision: str = option("weak", "strong: alignments are given; weak: they are inferred", ("strong", "weak"))
    candidates: int = option(5, "K, how many noisy assignment problems are solved")
    noise: float = option(1.0, "σ of the noise on the node log-probabilities")
    noise_shape: str = option(
        "normal", "N(0, σ), as in the paper's text, or between 0 and σ, as in its code", ("normal", "uniform")
    )
    remember: bool = option(True, "the previous alignment of a sentence is candidate K + 1")
    swaps: int = option(
        0, "how often a pair of nodes of equal label, or two pairs, may change places, where edges make that likelier"
    )
    variables: str = option(
        "named",
        "whether alignments tell variables (?x0, ?x1 …) apart by name; alike: no, and parses have no name twice, "
        "and number them as training's forms do",
        ("named", "alike"),
    )
    start: str = option(
        "model", "where alignments start: from the model alone, or from counts", ("model", "association")
    )
    hold: int = option(0, "steps during which the alignments of start = association are kept as they are")
    given: str = option(
        "",
        "take the training alignments from this run folder (each seed its own seed's) or file of `lagr align`",
    )


@dataclass(frozen=True)
class Train:
    steps: int = option(10_000, "optimizer steps")
    batch: int = option(128, "B, sentences in a step")
    learning_rate: float = option(4e-4, "Adam's learning rate at its peak")
    warmup: int = option(0, "steps over which the learning rate rises to its peak; then it falls linearly to 0")
    clip: float = option(1.0, "largest norm of the gradient; 0: no clipping")
    unknown: float = option(
        0.0, "α: a word seen n times is read as an unknown one with probability α / (α + n)", kind="lagr"
    )
    seed: int = option(0, "seed of the weights, the order of the data, dropout and noise")
    evaluate_every: int = option(2000, "steps between two evaluations on dev; 0: only at the end")
    evaluate_limit: int = option(1000, "sentences of a split used in an evaluation during training")
    keep: str = option("last", "the last model, or the one that was best in an evaluation on dev", ("last", "best"))
    save_every: int = option(1000, "steps between two checkpoints for --resume")
    device: str = option("auto", "auto: the GPU where there is one", ("auto", "cpu", "cuda"))
    threads: int = option(0, "threads of the CPU that a step takes; 0: as many as torch would")
    precision: str = option(
        "auto",
        "auto: bf16 on the GPU, float32 on the CPU; a CPU needs instructions for bf16, which pays for wide models",
        ("auto", "float32", "bf16"),
    )
    restart_below: float = option(0.0, "restart with a new seed when the training accuracy (%) ends below; 0: never")
    restart_after: float = option(1.0, "share of the steps after which the training accuracy is looked at")
    restarts: int = option(10, "how many restarts at most")


@dataclass(frozen=True)
class Rules:
    triples: tuple[tuple[str, ...], ...] = option(
        (), "the only edges there may be, as [source, edge label, target]; []: any", kind="lagr"
    )
    leaving: tuple[tuple[str, ...], ...] = option(
        (), "how many edges may leave a node, as [node, edge label, number]; 1, 0-2, 1-", kind="lagr"
    )
    entering: tuple[tuple[str, ...], ...] = option((), "how many edges may enter a node, in the same way", kind="lagr")


@dataclass(frozen=True)
class Config:
    data: Data = Data()
    model: Model = Model()
    align: Align = Align()
    train: Train = Train()
    rules: Rules = Rules()

    def __post_init__(self) -> None:
        check(self)

    @property
    def infers_alignments(self) -> bool:
        return self.model.kind == "lagr" and self.align.supervision == "weak"

    def to_dict(self) -> dict[str, dict[str, Any]]:
        rules = {name: [list(rule) for rule in rules] for name, rules in vars(self.rules).items()}  # as JSON has them
        return {**asdict(self), "rules": rules}


SECTIONS: dict[str, type] = {"data": Data, "model": Model, "align": Align, "train": Train, "rules": Rules}


def check(config: Config) -> None:
    """ConfigError where settings make no sense, alone or together."""
    model, align, train = config.model, config.align, config.train
    for section, value in (("data", config.data), ("model", model), ("align", align), ("train", train)):
        for f in fields(value):
            choices, given = f.metadata["choices"], getattr(value, f.name)
            if choices and given not in choices:
                raise ConfigError(f"{section}.{f.name} is {given!r}; it can be {' or '.join(choices)}")
            if isinstance(given, (int, float)) and given < 0:
                raise ConfigError(f"{section}.{f.name} is {given}; it can't be negative")
            # LAGr's settings are no mistake beside seq2seq: `--model.kind seq2seq` may be put upon any preset.
            if f.metadata["kind"] == "seq2seq" and model.kind != "seq2seq" and given != f.default:
                raise ConfigError(f"{section}.{f.name} is for model.kind = seq2seq; leave it out, or set that")
    if config.rules != Rules():
        from lagr.rules import check_numbers

        if model.kind == "seq2seq":
            raise ConfigError("rules are for graphs that are labelled; model.kind = seq2seq writes forms")
        check_numbers(config.rules)
    at_least_one = (
        ("model.width", model.width), ("model.encoder_layers", model.encoder_layers), ("model.heads", model.heads),
        ("model.graph_layers", model.graph_layers), ("model.longest_form", model.longest_form),
        ("align.candidates", align.candidates),
        ("train.steps", train.steps), ("train.batch", train.batch), ("train.save_every", train.save_every),
        ("train.evaluate_limit", train.evaluate_limit),
    )  # fmt: skip
    for name, given in at_least_one:
        if given < 1:
            raise ConfigError(f"{name} is {given}; it must be at least 1")
    if align.hold and align.start != "association":
        raise ConfigError("align.hold needs align.start = association: nothing else gives alignments to hold")
    if align.given and align.supervision == "weak":
        raise ConfigError("align.given needs align.supervision = strong: weak supervision finds its own alignments")
    if model.anonymous and not (config.data.copy and model.encoders == "separate"):
        raise ConfigError("model.anonymous needs data.copy = true and model.encoders = separate: nodes need the words")
    if model.needs and model.valency:
        raise ConfigError("model.needs does nothing with model.valency, which chooses all edges; set one of them to 0")
    if max(train.seed, config.data.seed) >= 2**30:
        raise ConfigError("a seed must be below 2^30")
    if model.reach >= 1:
        raise ConfigError(f"model.reach is {model.reach}; it is a share of the sentences, below 1")
    if model.dropout >= 1:
        raise ConfigError(f"model.dropout is {model.dropout}; it must be below 1")
    if not 0 < train.restart_after <= 1:
        raise ConfigError(f"train.restart_after is {train.restart_after}; it is a share of the steps, above 0 up to 1")
    if model.encoder == "transformer" and model.width % (2 * model.heads):
        raise ConfigError(f"model.width {model.width} must be a multiple of 2 · model.heads, {2 * model.heads}")
    if model.encoder == "lstm" and model.shared_layers:
        raise ConfigError("model.shared_layers needs model.encoder = transformer")
    if model.positions == "rotary" and model.edge_width % 2:
        raise ConfigError(f"model.edge_width {model.edge_width} must be even for rotary positions")
    if model.encoder == "lstm" and model.width % 2:
        raise ConfigError(f"model.width {model.width} must be even for a bidirectional LSTM")


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(name: str) -> Config:
    """The configuration of a preset, or of a TOML file."""
    path = Path(name)
    if path.suffix != ".toml":
        path = PRESETS / f"{name}.toml"
        if not path.is_file():
            near = difflib.get_close_matches(name, presets(), 1)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else "see `lagr presets`, or give a .toml file, a .jsonl file or a folder of data"
            )
            raise ConfigError(f"no preset {name!r}; {hint}")
    return from_dict(read_toml(path), str(path) if path.parent != PRESETS else name)


def load_rules(path: str | Path) -> Rules:
    """The rules of a TOML file, which may have other settings too."""
    raw = read_toml(Path(path))
    if "rules" not in raw:
        raise ConfigError(f"{path} has no rules; write them under [rules]")
    return from_dict({"rules": raw["rules"]}, str(path)).rules


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number with thousands of digits
        raise ConfigError(f"{path} is no TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None


def from_dict(raw: dict[str, Any], where: str) -> Config:
    changes = []
    for section, values in raw.items():
        if section == "about":  # a preset's own words: where its numbers are from, what the paper reports
            continue
        if not isinstance(values, dict):
            if section in SECTIONS:
                raise ConfigError(f"{section} in {where} is {values!r}; it should be a table, [{section}]")
            _unknown(section, SECTIONS, where)
        changes += [(section, key, value) for key, value in values.items()]
    return override(Config(), changes, where)


def override(config: Config, changes: Iterable[tuple[str, str, Any]], where: str = "the command line") -> Config:
    """The configuration with some keys changed; values may be text, as on a command line."""
    by_section: dict[str, dict[str, Any]] = {}
    for section, key, value in changes:
        if section not in SECTIONS:
            _unknown(section, SECTIONS, where)
        known = {f.name: f for f in fields(SECTIONS[section])}
        if key not in known:
            _unknown(f"{section}.{key}", [f"{s}.{f.name}" for s, c in SECTIONS.items() for f in fields(c)], where)
        by_section.setdefault(section, {})[key] = _typed(value, known[key].default, f"{section}.{key}", where)
    sections = {section: replace(getattr(config, section), **values) for section, values in by_section.items()}
    return replace(config, **sections)


def to_toml(config: Config) -> str:
    """The whole configuration as TOML, every key with what it means."""
    lines = []
    for section in SECTIONS:
        value = getattr(config, section)
        lines.append(f"[{section}]")
        for f in fields(value):
            given = getattr(value, f.name)
            lines.append(f"{f.name} = {_toml(given)}".ljust(36) + f"# {f.metadata['help']}")
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        import json

        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a JSON string is a TOML basic string
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def _typed(value: Any, default: Any, name: str, where: str) -> Any:
    """The value as the kind of its default; numbers may be written as text, whole numbers stand for fractions."""
    kind = type(default)
    if kind is bool:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if isinstance(value, bool):
            return value
    elif kind is str:
        if isinstance(value, str):
            return value
    elif kind is tuple:
        if (rules := _threes(value)) is not None:
            return rules
    elif value is False and name in ("model.twins", "model.anonymous"):
        return 0  # they were switches once: runs of then that had them off are read too
    elif not isinstance(value, bool):
        try:
            if kind is float or not isinstance(value, float):
                number = kind(value.replace("_", "") if isinstance(value, str) else value)
                if number == number and abs(number) != float("inf"):
                    return number
        except (TypeError, ValueError, OverflowError):
            pass
    wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "text", tuple: THREES}[kind]
    raise ConfigError(f"{name} in {where} is {value!r}; it should be {wanted}")


def _threes(value: Any) -> tuple[tuple[str, ...], ...] | None:
    """Rules, from lists or from the text of lists; numbers may stand without quotation marks."""
    if isinstance(value, str):
        try:
            value = tomllib.loads(f"rules = {value}")["rules"]
        except ValueError:
            return None
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(one, (list, tuple)) and len(one) == 3 for one in value
    ):
        return None
    if not all(type(part) in (str, int) for one in value for part in one):
        return None
    return tuple(tuple(map(str, one)) for one in value)


def _unknown(name: str, known: Iterable[str], where: str) -> None:
    near = difflib.get_close_matches(name, list(known), 1, cutoff=0.5)
    raise ConfigError(f"unknown key {name!r} in {where}" + (f"; did you mean {near[0]}?" if near else ""))
