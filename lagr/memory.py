"""How much memory training or parsing will need, said before it begins, and one line where it runs out all the same.

The estimate counts what is held at the fullest moment of a step, from the sizes alone. `lagr bench scaling` puts it
beside what was measured. It may be a fifth too high, so a run is refused where it is far beyond what is free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from lagr.batch import Bucket
from lagr.config import Config
from lagr.encoders import NEAR
from lagr.errors import ConfigError, DataError
from lagr.model import LAGr
from lagr.seq2seq import Seq2Seq

GIB = 2**30
FLOAT, HALF, LONG = 4, 2, 8  # bytes
GPU_WORKSPACES = GIB // 4  # what the libraries of a GPU take, however small the model is
OUT_OF_MEMORY = "can't allocate memory|out of memory|ALLOC_FAILED|OutOfResources|out of resource"
DOUBT = 1.2  # how much too high the estimate may be
WORTH_A_LOOK = GIB  # below, a sentence is parsed without asking what is free


def training_bytes(config: Config, model: LAGr | Seq2Seq, bucket: Bucket, examples: int, seeds: int, bf16: bool) -> int:
    """What a run holds while it takes a step with a batch of this bucket. model: that of one seed."""
    m, train, align = config.model, config.train, config.align
    S, B, N, J, D = seeds, train.batch, bucket.tokens, bucket.nodes, m.width
    # Weights, Adam's moments, their successors and the gradients, in float32; with bf16 a copy and gradients in it.
    weights = S * sum(p.numel() for p in model.parameters()) * (8 * FLOAT if bf16 else 10 * FLOAT)
    # What a layer keeps for the way back. A GPU's compiled layers keep half as many numbers, each of half the bytes.
    kept = 26 * D if m.encoder == "lstm" else 20 * D + 4 * (m.feedforward or D) + 4 * m.heads * N
    encoded = S * B * N * m.encoder_layers * kept * (HALF / 2 if bf16 else FLOAT)
    fixed = weights + (GPU_WORKSPACES if bf16 else 0)
    if isinstance(model, Seq2Seq):
        T = bucket.form
        # A decoder looks at the sentence too; scores of all form tokens, their logarithms and both's gradients.
        kept = 30 * D if m.encoder == "lstm" else 32 * D + 4 * (m.feedforward or D) + 4 * m.heads * (T + N)
        decoded = S * B * T * model.decoder_layers * kept * (HALF / 2 if bf16 else FLOAT)
        return int(fixed + encoded + decoded + 4 * S * B * T * model.embed_form.words.shape[1] * FLOAT)
    M, E = N * m.graph_layers, model.edge_labels
    # Scores, their logarithms and the gradients of both; of pairs also their labels and what these pick.
    nodes = 4 * S * B * N * model.node_scorer.weight.shape[2] * FLOAT
    vectors = 6 * S * B * N * model.edge_keys.weight.shape[2] * (HALF if bf16 else FLOAT)
    of_pair = 2 if bf16 else 4  # a GPU's kernel keeps no scores, only logarithms and their gradient
    pairs = S * B * M * M * (of_pair * E * FLOAT + 3 * LONG)
    # Words with their neighbours, which are kept, their gradient, and what joins the twins' scores to the others.
    twins = 2 * (2 * NEAR + 1) * D + 2 * model.edge_keys.weight.shape[2] if model.twins else 0
    vectors += S * B * N * twins * (HALF if bf16 else FLOAT)
    weak = align.supervision == "weak"
    noise = 10 * S * B * align.candidates * J * M * FLOAT if weak else 0
    remembered = S * examples * J * LONG if weak else 0
    return int(fixed + encoded * model.encoders + nodes + vectors + max(pairs, noise) + remembered)


def parsing_bytes(model: LAGr, tokens: int) -> int:
    """What one sentence of that many tokens needs: scores of pairs twice, and their likeliest labels."""
    M = tokens * model.graph_layers
    return M * M * (2 * model.edge_labels * FLOAT + 4 * LONG)


def check_training(
    config: Config, model: LAGr | Seq2Seq, buckets: Sequence[Bucket], examples: int, seeds: int, device: str, bf16: bool
) -> None:
    """ConfigError where the batches of some length can't fit into the memory that is free."""
    needs = [(training_bytes(config, model, bucket, examples, seeds, bf16), bucket.tokens) for bucket in buckets]
    needed, tokens = max(needs)
    if (free := free_bytes(device)) is not None and needed > DOUBT * free:
        raise ConfigError(
            f"training needs about {gib(needed)} of memory, at its batches of {config.train.batch} sentences of up to "
            f"{tokens} tokens, and {gib(free)} are free; {training_advice(seeds)}"
        )


def check_parsing(model: LAGr, tokens: int, device: str) -> None:
    needed = parsing_bytes(model, tokens)
    if needed > WORTH_A_LOOK and (free := free_bytes(device)) is not None and needed > DOUBT * free:
        raise DataError(
            f"a sentence of {tokens} tokens needs about {gib(needed)} of memory, and {gib(free)} are free; split it"
        )


def training_advice(seeds: int) -> str:
    fewer = "lower train.batch, --seeds" if seeds > 1 else "lower train.batch"
    return f"{fewer} or model.width, or leave out the longest sentences"


def free_bytes(device: str) -> int | None:
    """Memory that a run could get on this device; None where nothing says so."""
    if torch.device(device).type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, for what comes next
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.M)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None


@contextmanager
def explained(what: str, advice: str) -> Iterator[None]:
    """Says in one line that the memory ran out, whether a GPU or the CPU's allocator found out."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        message = str(error)
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not re.search(OUT_OF_MEMORY, message):
            raise
        asked = re.search(r"ried to allocate ([\d.]+) (\w+)", message)  # in bytes on a CPU, in MiB or GiB on a GPU
        units = {"bytes": 1, "MiB": GIB // 1024, "GiB": GIB}
        size = f" at {gib(float(asked[1]) * units[asked[2]])} more" if asked and asked[2] in units else ""
        raise ConfigError(f"the memory ran out{size} while {what}; {advice}") from None


def gib(size: float) -> str:
    """A number of bytes in words.

    >>> gib(3 * 2**29)
    '1.5 GiB'
    """
    return f"{size / GIB:.1f} GiB"
