"""The fuzz job: no crash, no verdict that depends on the tokens, nothing paid that is not the value.

    python -m tests.fuzz.run                            # a million texts, about ten minutes on one core
    python -m tests.fuzz.run --texts 50000 --seed 7

Every text is judged as single bytes and in a random tokenisation, against golds that are tempting for it. Each
CORRECT is confirmed by the strict reader; one that is not is cut down to a minimal text and printed. Exit status 1
if there was any.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy
import torch

from atrl_envs.verify import MathVerifier, Verdict
from atrl_envs.verify.extract import STYLES
from atrl_envs.vocab import Vocab
from tests.envs import tokenizers_built
from tests.envs.verify.slow_extraction import answer_in, judged_part
from tests.envs.verify.spellings import PieceVocab, split
from tests.fuzz.mutations import MARKERS, PARTS, Case, Writer
from tests.fuzz.strict_reader import Reading, Unclear, last_reading, reading

BATCH = 4096


class Tokens:
    """Cuts byte strings into random tokens of one vocabulary; None for a byte it cannot spell."""

    def __init__(self, vocab: PieceVocab | Vocab) -> None:
        self.vocab, (table, length) = vocab, vocab.byte_table
        self.ids: dict[bytes, list[int]] = {}
        for index, (row, count) in enumerate(zip(table.tolist(), length.tolist(), strict=True)):
            if count and index != vocab.eos_id:
                self.ids.setdefault(bytes(row[:count]), []).append(index)
        self.longest = max(map(len, self.ids))

    def cut(self, raw: bytes, rng: random.Random) -> list[int] | None:
        ids, at, longest = [], 0, self.longest
        while at < len(raw):
            choices = [size for size in range(1, longest + 1) if raw[at : at + size] in self.ids]
            if not choices:
                return None
            size = min(rng.choice(choices), len(raw) - at)
            ids.append(rng.choice(self.ids[raw[at : at + size]]))
            at += size
        return ids


class Judge:
    """Verdicts of one style over one vocabulary, in batches, each row behind a prompt and before an EOS."""

    def __init__(self, tokens: Tokens, style: str) -> None:
        self.tokens, self.verifier = tokens, MathVerifier(tokens.vocab, style)

    def __call__(
        self, texts: Sequence[bytes], golds: Sequence[str], rng: random.Random | None = None
    ) -> list[int | None]:
        """Verdict of each text, None where the vocabulary cannot spell it; rng: cut at random, prompts and ends."""
        cut = [self.tokens.cut(raw, rng or random.Random(0)) for raw in texts]
        kept = [i for i, ids in enumerate(cut) if ids is not None]
        eos = self.tokens.vocab.eos_id
        junk = next(iter(self.tokens.ids.values()))[0]
        rows, starts = [], []
        for i in kept:
            prompt = [junk, eos][: rng.randint(0, 2)] if rng else []
            rows.append([*prompt, *(cut[i] or []), eos, junk])
            starts.append(len(prompt))
        block = numpy.full((len(rows), max(map(len, rows), default=1)), eos, dtype=numpy.int64)
        for row, ids in zip(block, rows, strict=True):
            row[: len(ids)] = ids
        answers = self.verifier.encode_answers([golds[i] for i in kept])
        found = self.verifier(torch.from_numpy(block), torch.tensor(starts, dtype=torch.int64), answers)
        verdicts: list[int | None] = [None] * len(texts)
        for i, verdict in zip(kept, found.tolist(), strict=True):
            verdicts[i] = verdict
        return verdicts


def confirmed(raw: bytes, gold: str, style: str) -> bool:
    """Whether the strict reader finds the gold's value in the text, or leaves it open in a running text."""
    try:
        said, wanted = said_by(raw, style), reading(gold)
    except Unclear:
        return True
    return (
        said is not None
        and wanted is not None
        and said.value == wanted.value
        and said.percent >= wanted.percent
    )


def said_by(raw: bytes, style: str) -> Reading | None:
    if style == "last_number":
        begin, stop = judged_part(raw)
        return last_reading(raw[begin:stop].decode("utf-8", "replace"))
    found = answer_in(raw, style)
    if found is None or found.hidden:
        return None
    try:
        return reading(found.answer.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def shortened(raw: bytes, still: Callable[[Sequence[bytes]], list[bool]]) -> bytes:
    """The text without whatever may be left out of it while `still` holds."""
    size = max(1, len(raw) // 2)
    while size:
        options = [raw[:at] + raw[at + size :] for at in range(len(raw) - size + 1)]
        fitting = [option for option, holds in zip(options, still(options), strict=True) if holds]
        if fitting:
            raw = fitting[0]
        else:
            size //= 2
    return raw


@dataclass
class Books:
    """What was judged, and what was found."""

    texts: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[str, bytes, str]] = field(default_factory=dict)
    repeated: Counter[str] = field(default_factory=Counter)

    def find(self, kind: str, style: str, raw: bytes, gold: str) -> None:
        """Keep one minimal case of each kind: runs of digits and of letters stand for their like."""
        shape = re.sub(rb"[a-z]+", b"a", re.sub(rb"\d+|(?:\xef\xbc[\x90-\x99])+", b"0", raw))
        name = f"{kind} {style} {shape!r}"
        self.repeated[name] += 1
        if name not in self.findings:
            self.findings[name] = (style, raw, gold)
            print(
                f"{kind}: style {style}, gold {gold!r}, text {raw!r}, says {said_by(raw, style)}", flush=True
            )


class Job:
    """Judges cases of all styles over several vocabularies, and keeps the books."""

    def __init__(self, seed: int) -> None:
        self.rng, self.writer, self.books = random.Random(seed), Writer(seed), Books()
        pieces = [piece for part in PARTS + MARKERS for piece in split((part * 2).encode(), self.rng)]
        self.vocabularies = {
            "pieces": Tokens(PieceVocab(pieces)),
            "byte_level": Tokens(Vocab.from_tokenizer(tokenizers_built.byte_level())),
            "sentence_piece": Tokens(Vocab.from_tokenizer(tokenizers_built.sentence_piece())),
            "characters": Tokens(Vocab.characters()),
        }
        single = Tokens(PieceVocab())
        self.plain = {style: Judge(single, style) for style in STYLES}
        self.others = {
            (name, style): Judge(tokens, style)
            for name, tokens in self.vocabularies.items()
            for style in STYLES
        }

    def batch(self, style: str, size: int) -> None:
        """One batch of fresh cases of a style."""
        cases = [self.writer.case(style) for _ in range(size)]
        pairs = [(case, gold) for case in cases for gold in case.golds]
        texts, golds = [case.raw for case, _ in pairs], [gold for _, gold in pairs]
        verdicts = self.plain[style](texts, golds)
        self.books.texts += size
        self.books.verdicts.update(Verdict(v).name for v in verdicts if v is not None)
        for (case, gold), verdict in zip(pairs, verdicts, strict=True):
            if verdict == Verdict.CORRECT and not confirmed(case.raw, gold, style):
                self._paid_without_value(case, gold)
        name = self.rng.choice(list(self.vocabularies))
        self._compare(name, style, pairs, verdicts)

    def _paid_without_value(self, case: Case, gold: str) -> None:
        def still(options: Iterable[bytes]) -> list[bool]:
            tried = list(options)
            found = self.plain[case.style](tried, [gold] * len(tried))
            return [
                v == Verdict.CORRECT and not confirmed(o, gold, case.style)
                for o, v in zip(tried, found, strict=True)
            ]

        self.books.find("paid", case.style, shortened(case.raw, still), gold)

    def _compare(
        self, name: str, style: str, pairs: list[tuple[Case, str]], verdicts: list[int | None]
    ) -> None:
        """The same texts in another tokenisation get the same verdicts."""
        judge = self.others[name, style]
        again = judge([case.raw for case, _ in pairs], [gold for _, gold in pairs], self.rng)
        for (case, gold), first, second in zip(pairs, verdicts, again, strict=True):
            if second is not None and first != second:
                self.books.find(f"differs in {name} ({first}, {second})", style, case.raw, gold)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=1_000_000, help="texts to judge")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    job, began, next_line = Job(options.seed), time.perf_counter(), 100_000
    while job.books.texts < options.texts:
        for style in STYLES:
            job.batch(style, max(1, min(BATCH, (options.texts - job.books.texts) // len(STYLES))))
        if job.books.texts >= min(next_line, options.texts):
            next_line += 100_000
            spent = time.perf_counter() - began
            print(f"{job.books.texts} texts, {spent:.0f} s, {dict(job.books.verdicts)}", flush=True)
    for name, count in job.books.repeated.most_common():
        style, raw, gold = job.books.findings[name]
        print(f"{count} x {name.split(' b', 1)[0]}: gold {gold!r}, text {raw!r}")
    print(f"{len(job.books.findings)} kinds of findings in {job.books.texts} texts")
    return 1 if job.books.findings else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
