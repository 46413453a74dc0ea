"""`lagr VERB`. Results go to stdout, progress and messages to stderr.

Exit status 0; 1 for a LagrError, printed as one line; 2 for a command that was not understood; 3 where
--min-probability left a sentence without an answer. arguments.py has what can be typed, verbs.py and verbs_research.py
what is done then.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from lagr.arguments import build_parser
from lagr.errors import LagrError
from lagr.verbs import ABSTAINED

__all__ = ["ABSTAINED", "build_parser", "main", "understand"]


def understand(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command. Sentences may stand before and after options, which argparse alone doesn't allow."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and hasattr(options, "sentences") and not any(word.startswith("--") for word in rest):
        options.sentences += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = understand(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows fewer characters is no reason to fail
    try:
        status: int = options.run(options) or 0
        sys.stdout.flush()
    except LagrError as error:
        print(f"lagr: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lagr: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"lagr: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    else:
        return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
