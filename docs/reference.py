"""The reference, made from the code: `python docs/reference.py` writes docs/reference/*.md.

Commands come from the argument parser, settings from the configuration's fields, Python from docstrings. The tables are
made from the parser's actions, not from its help, which every version of Python words in its own way.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import lagr
from lagr import config, errors
from lagr.cli import build_parser

RUN = "a run folder, or the name of a model that comes with the package"
EXIT = """Exit status 0; 1 for an error, which is one line on stderr; 2 for a command that was not understood; 3 where
`--min-probability` left a sentence without an answer. Results go to stdout, everything else to stderr."""
SETTINGS = """Of a preset, of a TOML file, or on the command line: `--train.steps 400`.
A run's `config.toml` has all of them, with what each means."""
MADE = "<!-- made from the code by `make reference`; edit the code instead -->"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(*head: str) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]


def verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Every command that can be given, with its help; of `lagr data` its two parts."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, verb in action.choices.items():
                parts = list(verbs(verb))
                yield from parts or [(verb, helps[name])]


def argument(action: argparse.Action) -> str:
    """How an argument is written: `--out RUN`, `SENTENCE …`."""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return f"{value} …" if action.nargs in ("*", "+") else str(value)
    return action.option_strings[-1] + ("" if action.nargs == 0 else f" {value}")


def is_setting(action: argparse.Action) -> bool:
    return any("." in option for option in action.option_strings)


def commands() -> str:
    lines = [MADE, "", "# Commands", "", str(build_parser().epilog), ""]
    lines += [EXIT, ""]
    for parser, help in verbs(build_parser()):
        lines += [f"## {parser.prog}", "", help[0].upper() + help[1:] + ".", ""]
        shown = [a for a in parser._actions if not isinstance(a, argparse._HelpAction) and not is_setting(a)]
        if shown:
            lines += table("argument", "")
            lines += [
                f"| `{cell(argument(a))}` | {cell(a.help or (RUN if a.metavar == 'RUN' else ''))} |" for a in shown
            ]
        if any(is_setting(a) for a in parser._actions):
            lines += ["| `--SECTION.KEY VALUE` | any of the [settings](settings.md) |"]
        lines += [""] if shown else []
    return "\n".join(lines)


def settings() -> str:
    lines = [MADE, "", "# Settings", "", SETTINGS, ""]
    for section, values in config.SECTIONS.items():
        lines += [f"## [{section}]", "", *table("key", "default", "")]
        for f in fields(values):
            choices = "; one of " + ", ".join(f"`{c}`" for c in f.metadata["choices"]) if f.metadata["choices"] else ""
            lines.append(
                f"| `{section}.{f.name}` | `{config._toml(f.default)}` | {cell(f.metadata['help'])}{choices} |"
            )
        lines.append("")
    return "\n".join(lines)


def docstring(thing: object) -> list[str]:
    return [*inspect.getdoc(thing).splitlines(), ""] if inspect.getdoc(thing) else []


def described(name: str, thing: Callable[..., object], level: int) -> list[str]:
    return [f"{'#' * level} {name}", "", f"`{name}{signature(thing)}`", "", *docstring(thing)]


class Bare(str):
    """An annotation, which a signature shows in quotation marks otherwise."""

    __repr__ = str.__str__


def signature(thing: Callable[..., object]) -> str:
    found = inspect.signature(thing)
    shown = [p.replace(annotation=Bare(p.annotation)) for p in found.parameters.values() if p.name != "self"]
    return str(found.replace(parameters=shown, return_annotation=Bare(found.return_annotation)))


def attributes(kind: type) -> list[str]:
    """The fields of a dataclass with the comments behind them, which the source alone has."""
    source, rows = inspect.getsource(kind), []
    for name in kind.__annotations__:
        line = next(line for line in source.splitlines() if line.strip().startswith(f"{name}:"))
        declared, _, comment = line.partition("  # ")
        rows.append(f"| `{name}` | `{cell(declared.strip().removeprefix(f'{name}: '))}` | {cell(comment)} |")
    return [*table("attribute", "kind", ""), *rows, ""]


def methods(kind: type, names: str) -> list[str]:
    return [line for name in names.split() for line in described(f"{kind.__name__}.{name}", getattr(kind, name), 3)]


def python() -> str:
    from lagr import parser

    lines = [MADE, "", "# Python", "", "`import lagr` has what is here without another module's name before it.", ""]
    lines += described("lagr.load", lagr.load, 2)
    lines += ["## Parser", "", *docstring(lagr.Parser), *methods(lagr.Parser, "parse parse_tokens align")]
    lines += ["## Parse", "", *docstring(lagr.Parse), *attributes(lagr.Parse)]
    lines += methods(lagr.Parse, "to_dict unless_below draw")
    lines += ["### A node of a parse", "", *attributes(parser.ParsedNode)]
    lines += ["### An edge of a parse", "", *attributes(parser.ParsedEdge)]
    lines += ["## Graph", "", *docstring(lagr.Graph), *attributes(lagr.Graph)]
    lines += methods(lagr.Graph, "with_slots at_tokens reordered to_dict from_dict")
    lines += ["## Edge", "", *docstring(lagr.Edge), *attributes(lagr.Edge)]
    lines += ["## Errors", "", "```text", *docstring(errors)[:-1], "```", ""]
    return "\n".join(lines)


PAGES = {"commands.md": commands, "settings.md": settings, "python.md": python}


def main() -> None:
    folder = Path(__file__).with_name("reference")
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
