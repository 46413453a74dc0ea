"""lagr: sentences to meaning graphs, by labelling aligned graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lagr.errors import LagrError
from lagr.graph import Edge, Graph

if TYPE_CHECKING:
    from lagr.parser import Parse, Parser, load

__version__ = "0.1.0"
__all__ = ["Edge", "Graph", "LagrError", "Parse", "Parser", "__version__", "load"]


def __getattr__(name: str) -> Any:
    # The parser needs torch, which takes seconds to import: only those who ask for it wait for it.
    if name in ("Parse", "Parser", "load"):
        from lagr import parser

        return getattr(parser, name)
    raise AttributeError(f"module 'lagr' has no attribute {name!r}")
