"""The verifier behind real tokenizers: byte-level BPE, SentencePiece with byte fallback, WordPiece, characters."""

from __future__ import annotations

import pytest

from atrl_envs.verify import MathVerifier, Verdict
from atrl_envs.vocab import Vocab
from tests.envs import tokenizers_built
from tests.envs.verify.spellings import batch

CASES = [
    ("boxed", "so x = \\boxed{42}, isn't it?", "42", Verdict.CORRECT),
    ("boxed", "so x = \\boxed{42}, isn't it?", "43", Verdict.WRONG),
    ("boxed", "\\boxed{7} no: \\boxed{\\frac{1}{2}}", "0.5", Verdict.CORRECT),
    ("gsm8k_hash", "the sum is 46.\n#### 1,234", "1234", Verdict.CORRECT),
    ("gsm8k_hash", "#### \u22121", "-1", Verdict.CORRECT),
    ("gsm8k_hash", "### 42", "42", Verdict.MISSING),
    ("last_number", "the sum of 12 and 34 is 46.", "46", Verdict.CORRECT),
    ("last_number", "caf\u00e9 3 \u2212 4 = \u22121", "-1", Verdict.CORRECT),
    ("plain", "46.", "46", Verdict.CORRECT),
    ("plain", "46.5", "46", Verdict.WRONG),
]


@pytest.mark.parametrize("family", ["byte_level", "sentence_piece", "word_piece", "characters"])
def test_same_verdicts(family: str) -> None:
    build = (
        Vocab.characters
        if family == "characters"
        else lambda: Vocab.from_tokenizer(getattr(tokenizers_built, family)())
    )
    vocab = build()
    judged = 0
    for style, text, gold, verdict in CASES:
        try:
            ids = vocab.encode(text)
        except ValueError:
            continue  # a character that this family cannot spell
        verifier = MathVerifier(vocab, style)
        tokens, start = batch([[*ids, vocab.eos_id]], vocab.pad_id, [ids[:1]])
        assert verifier(tokens, start, verifier.encode_answers([gold])).tolist() == [verdict], (style, text)
        judged += 1
    assert judged >= (1 if family == "word_piece" else 7)
