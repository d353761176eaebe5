"""PatternVerifier where the tokens are on the CPU: NumPy looks only where a pattern's rarest token stands.

    verdicts = judge_patterns(tokens, start, end, ids, length, eos_id)      # [B] int8, over the tensors' own memory

The same verdicts as the tensor program, which has to compare every place with every token of the pattern because
it may not look. Tokenizers number their tokens from frequent to rare, so the highest id of a pattern is taken for
its rarest token; a wrong guess costs time and nothing else. No loop over rows.
"""

from __future__ import annotations

import numpy
from torch import Tensor, from_numpy

from atrl_envs.verify.verdict import Verdict

_CORRECT, _WRONG, _INVALID = (numpy.int8(v) for v in (Verdict.CORRECT, Verdict.WRONG, Verdict.INVALID_GOLD))
FILLER = -(2**63)  # in the ids, beyond the end of a pattern; no token
SHARE = 4  # comparisons made at once are at most this part of the tokens


def judge_patterns(
    tokens: Tensor, start: Tensor, end: Tensor | None, ids: Tensor, length: Tensor, eos_id: int
) -> Tensor:
    """Verdicts [B] int8: see `PatternVerifier`. tokens: [B, S]; ids: [B, K]; S and K are at least 1."""
    shown, wanted, sizes = tokens.numpy(), ids.numpy(), length.numpy()
    size, flat = shown.shape[1], shown.reshape(-1)
    anchor = wanted.argmax(1)
    rarest = wanted.take(numpy.arange(0, wanted.size, wanted.shape[1]) + anchor)
    place = (shown == rarest[:, None]).reshape(-1).nonzero()[0]
    row = place // size
    place = place - anchor.take(row)  # where the pattern would begin
    done, longest = 0, wanted.shape[1]
    while done < longest and place.size:
        # Few places are compared with the whole pattern at once, many with its next token only. Places are columns.
        step = numpy.arange(done, min(longest, done + max(1, flat.size // (SHARE * place.size))))[:, None]
        next_ids = wanted.take(row * longest + step)
        same = flat.take(place + step, mode="clip") == next_ids
        same |= next_ids == FILLER
        keep = numpy.logical_and.reduce(same).nonzero()[0]
        place, row, done = place.take(keep), row.take(keep), done + len(step)
    origin, close = row * size, place + sizes.take(row)
    begin = origin + numpy.maximum(start.numpy().take(row), 0)
    stop = origin + (size if end is None else numpy.minimum(end.numpy().take(row), size))
    closing = (shown == eos_id).reshape(-1).nonzero()[0]
    # As many EOS stand before the response as before the pattern's end.
    right = closing.searchsorted(begin) == closing.searchsorted(close)
    right &= place >= begin
    right &= close <= stop
    verdicts = numpy.where(sizes == 0, _INVALID, _WRONG)
    verdicts[row[right]] = _CORRECT
    return from_numpy(verdicts)
