"""COGS from its TSV files: sentence, logical form, category. Home: github.com/najoungkim/COGS, MIT licence.

The 81 one-word rows that are verbs (`LAMBDA a . LAMBDA e . gasp . agent ( e , a )`) are kept, as the single node
`gasp`: the words of prim_to_inf_arg are seen nowhere else. They count as right when that node is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lagr.datasets import Example, Source, read_text
from lagr.errors import DataError, LagrError
from lagr.forms import cogs

SPLITS = ("train", "dev", "test", "gen")


def source(folder: Path) -> Source:
    splits = tuple(split for split in SPLITS if (folder / f"{split}.tsv").is_file())
    if "train" not in splits:
        raise DataError(
            f"there is no {folder / 'train.tsv'}; run `lagr data fetch cogs` or give its folder with --data"
        )
    return Source("cogs", splits, lambda split: rows(folder / f"{split}.tsv"), "cogs", slots_are_tokens=True)


def rows(path: Path) -> Iterator[Example | DataError]:
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), start=1):
        columns = line.split("\t")
        if len(columns) != 3:
            columns_here = f"{path}:{number} has {len(columns)} columns"
            yield DataError(f"{columns_here}; COGS has sentence, logical form, category")
            continue
        sentence, form, category = columns
        tokens = tuple(sentence.split(" "))
        try:
            graph, longer = cogs.read(form, tokens), form if cogs.is_lossy(form) else None
            yield Example(tokens, graph, cogs.write(graph) if longer else form, category, longer)
        except LagrError as error:
            yield DataError(f"{path}:{number}: {error}")
