"""Many small linear assignment problems at once, exactly, where the numbers are: on the CPU or on the GPU."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from lagr.matching import cpu


def best_assignment(gain: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The column of every row such that no column is used twice and the total gain is as large as possible.

    gain (B, K, J, M): K problems a sentence. Of sentence b only the first rows[b] rows and columns[b] columns count,
    rows[b] ≤ columns[b]; padding rows get column 0. A gain of −∞ forbids a pair.   → (B, K, J)
    """
    B, K, J, M = gain.shape
    if B * K * J == 0:
        return gain.new_zeros(B, K, J).long()
    if gain.is_cuda:
        from lagr.matching import cuda

        solve: Callable[[Tensor, Tensor, Tensor], Tensor] = cuda.solve
    else:
        solve = cpu.solve
    repeated = (size.repeat_interleave(K) for size in (rows, columns))
    found = solve(gain.reshape(B * K, J, M), *repeated)
    return found.view(B, K, J)
