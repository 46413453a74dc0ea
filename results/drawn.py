"""Draws what a run makes of a sentence that is in no corpus.

    python results/drawn.py RUN FILE.svg "SENTENCE" ["FORM"]

With the form that is right, the graph of that is above the one that is predicted, placed as the run finds likeliest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import lagr
from lagr.analyse import gold_and_predicted
from lagr.datasets import Example
from lagr.forms import formalism


def main(run: str, file: str, sentence: str, form: str = "") -> None:
    parser = lagr.load(run)
    parse = parser.parse(sentence)
    picture = parse.draw("svg")
    if form:
        graph = formalism(parser.formalism).read(form, parse.tokens)
        (gold,) = parser.align([Example(tuple(parse.tokens), graph)])
        picture = gold_and_predicted(parse.tokens, [gold.graph, parse.graph], parser.model.graph_layers)
    Path(file).write_text(picture, encoding="utf-8")
    print(parse.form)


if __name__ == "__main__":
    main(*sys.argv[1:])
