"""What can go wrong, for people: one line that says what is wrong and what to do.

LagrError                 the command line prints it and exits with status 1, without a traceback
├── GraphError            a graph that is none: a dangling edge, an empty label, two nodes in one slot
├── DataError             a file or a row of data that can't be used
│   └── FormError         a logical form or query that can't be read, or a graph that can't be written as one
├── ConfigError           an unknown key, a value of the wrong kind, settings that don't fit together
│   └── NoPlotsError      a picture of numbers, without the extra that draws it
├── RunError              a run folder that is missing, taken, or of another version; a run that can't go on
│   └── StoppedError      a run was asked to stop; everything is saved
└── StoreError            a store of triples that can't be opened, reached or understood
    └── StoreTimeoutError it did not answer in time
"""

from __future__ import annotations


class LagrError(Exception):
    """Base of every error this package raises on purpose."""


class GraphError(LagrError):
    pass


class DataError(LagrError):
    pass


class FormError(DataError):
    pass


class ConfigError(LagrError):
    pass


class NoPlotsError(ConfigError):
    pass


class RunError(LagrError):
    pass


class StoppedError(RunError):
    pass


class StoreError(LagrError):
    pass


class StoreTimeoutError(StoreError):
    pass
