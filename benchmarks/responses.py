"""Responses as a reasoning model writes them: prose with numbers, a marked answer at the end, real tokens.

    writer = ResponseWriter(seed=0)
    batch = writer.batch(rows=512, characters=2000)     # Batch: tokens [B, S], start [B], golds, right [B]

The tokenizer is a byte-level BPE trained here on the same kind of prose. Sentences are tokenised once and joined by
their ids, so long batches are made quickly; decoding the ids gives the text.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from atrl_envs.vocab import Vocab

NAMES = "Ana Ben Chloe Dmitri Elena Farid Grace Hugo Ines Jonas Kira Liam Mina Noor Oskar Priya".split()
THINGS = "apples books coins tickets bottles chairs stamps marbles pencils boxes tiles cards".split()
SENTENCES = (
    " {name} has {a} {things} and gives {b} of them away to the neighbours, so that {c} are left in the end.",
    " First I compute {a} + {b} = {c}.",
    " Then I multiply by {d}, which gives {e}.",
    " Wait, that is not right: there were {a} {things}, not {b}.",
    " Let me check this again, since the total of {c} looks too large.",
    " So each of the {d} friends gets {a} {things}, and {b} remain.",
    " Dividing both sides by {d}, we find x = {a}/{d}.",
    " The price rises from ${a} to ${c}, which is {b} more than before.",
    " In other words, the number of {things} is {d} times as large.",
    " That would take {a} minutes and {d} seconds, or about {b} steps.",
    " Hence the remaining {things} can be shared in {d} different ways.",
    "\n\nNext, consider what {name} still owes: {a} - {b}, plus the {d} from the first day.",
    " Alternatively, we could note that {e} = {c} * {d} and simplify.",
    " I think this is consistent with what the question says about {name} and the remaining {things}.",
    " Before going on, it is worth checking whether every condition of the problem has been used so far.",
    " Let me think about this step by step, and write down what is known and what is asked.",
)
MOST_SENTENCES = 3000
VOCABULARY = 6000


@dataclass(frozen=True)
class Batch:
    """Rows of prompt and response: tokens [B, S] int64, start [B] int64; which of them hold the right answer."""

    tokens: Tensor
    start: Tensor
    golds: list[str]
    right: list[bool]
    characters: float
    """Characters of a response, mean."""
    tokens_each: float
    """Tokens of a response, mean."""

    @property
    def rows(self) -> int:
        return self.tokens.shape[0]

    def head(self, rows: int) -> Batch:
        """Its first rows."""
        golds, right = self.golds[:rows], self.right[:rows]
        return Batch(self.tokens[:rows], self.start[:rows], golds, right, self.characters, self.tokens_each)


class ResponseWriter:
    """Writes batches from one stream of random numbers; `vocab` is the tokenizer it trained."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.sentences = [self._sentence() for _ in range(MOST_SENTENCES)]
        self.vocab = Vocab.from_tokenizer(_trained(tuple(self.sentences)))
        self.ids = self.vocab.encode_batch(self.sentences)

    def batch(self, rows: int, characters: int, style: str = "boxed") -> Batch:
        """Responses of about `characters` characters behind a short prompt; two thirds are right."""
        rng = self.rng
        prompt = self.vocab.encode("How many are left?")
        wanted = [Fraction(rng.randint(1, 9999), rng.choice((1, 1, 1, 2, 4, 7, 10))) for _ in range(rows)]
        right = [rng.random() < 2 / 3 for _ in range(rows)]
        said = [
            value if good else value + rng.randint(1, 9) for value, good in zip(wanted, right, strict=True)
        ]
        closings = [closing(answer_text(value, style, rng), style) for value in said]
        ends = self.vocab.encode_batch(closings)
        written, total, spent = [], 0, 0
        for text, ids in zip(closings, ends, strict=True):
            row, size = list(prompt), len(text)
            while size < characters:
                pick = rng.randrange(len(self.sentences))
                row += self.ids[pick]
                size += len(self.sentences[pick])
            written.append([*row, *ids, self.vocab.eos_id])
            total += size
            spent += len(row) - len(prompt) + len(ids)
        tokens = torch.full((rows, max(map(len, written))), self.vocab.pad_id)
        for line, row in zip(tokens, written, strict=True):
            line[: len(row)] = torch.tensor(row)
        golds = [str(value) for value in wanted]
        start = torch.full((rows,), len(prompt))
        return Batch(tokens, start, golds, right, total / rows, spent / rows)

    def _sentence(self) -> str:
        rng = self.rng
        numbers = {letter: rng.randint(2, 10 ** rng.randint(1, 5)) for letter in "abcde"}
        return rng.choice(SENTENCES).format(name=rng.choice(NAMES), things=rng.choice(THINGS), **numbers)


def answer_text(value: Fraction, style: str, rng: random.Random) -> str:
    """A value as models write it."""
    if value.denominator == 1:
        return rng.choice((f"{value.numerator}", f"{value.numerator:,}", f"{value.numerator}.00"))
    if value.denominator in (2, 4, 10) and rng.random() < 0.5:
        return str(float(value))
    if style == "last_number":
        return f"{value.numerator}/{value.denominator}"
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def closing(answer: str, style: str) -> str:
    """The end of a response, with the answer as a style wants it."""
    return {
        "boxed": f" The final answer is $\\boxed{{{answer}}}$.",
        "gsm8k_hash": f"\n#### {answer}",
        "answer_tag": f"</think><answer>{answer}</answer>",
        "last_number": f" The final answer is {answer}.",
        "plain": answer,
    }[style]


@functools.lru_cache(maxsize=2)
def _trained(sentences: tuple[str, ...]) -> object:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    # Up to three digits are a token, as in most tokenizers of recent models.
    split = pre_tokenizers.Split(Regex(r"\d{1,3}| ?[A-Za-z]+| ?[^\sA-Za-z\d]+|\s+"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = ["\\boxed{", "\\frac{", "####", "<answer>", "</answer>", "</think>"]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([*sentences, *marks * 20], trainer)
    backend.add_special_tokens(["<|end|>", "<|pad|>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")
