"""`lagr bench profile`: where the time of a step goes."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lagr import bench
from lagr.devices import choose_device, machine


def profile() -> dict[str, Any]:
    """Where the time of a step goes, weak supervision: by kind of kernel on a GPU, of operation on a CPU."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    settings, source = bench._task("weak")
    device, steps = choose_device("auto"), 20
    with TemporaryDirectory() as folder:
        trainer = bench._trainer(settings, 1, Path(folder), source)
        bench.take_every_shape(trainer)
        with watch(activities=[ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU]) as watched:
            for _ in range(steps):
                trainer._take_step()
            bench._synchronize()
    by_part: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in watched.key_averages():
        spent = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        part = by_part[next(part for part, names in PARTS.items() if re.search(names, event.key))]
        part[0], part[1] = part[0] + spent / 1000 / steps, part[1] + event.count / steps
    total = round(sum(ms for ms, _ in by_part.values()), 4)
    parts = [
        {"part": part, "ms": round(ms, 4), "launches": round(launches, 1)}
        for part, (ms, launches) in sorted(by_part.items(), key=lambda item: -item[1][0])
    ]
    what = f"a weak step, {bench._shape(settings)}"
    return {"what": what, "ours_ms": total, "parts": parts, "device": machine(device)}


PARTS = {  # by names of kernels and operations; the first that fits
    "matrix products": r"gemm|nvjet|cutlass|splitK|cublas|aten::(bmm|mm|addmm|baddbmm|matmul|einsum)",
    "attention": r"_attention_|softmax$",
    "between products": r"_sublayer_|reduce_kernel|Functor_add|layer_norm|relu|threshold",
    "edge scores": r"_edges_|log_softmax",
    "assignment": r"_augmenting_paths|lap",
    "optimizer": r"copy.*sqrt|triton_for_fused|pow_sum|sqrt",
    "copies to the device": r"Memcpy HtoD",
    "the rest": r"",
}
