"""MathVerifier: verdicts for a whole batch of responses, computed where the tokens are.

    verifier = MathVerifier(vocab, style="boxed")
    answers = verifier.encode_answers(["0.5", "12"])            # host side, once per bank
    verdicts = verifier(tokens, start, answers[problem])        # [B] int8, see Verdict

One call: tokens to bytes by the vocabulary's byte table, the marker of the style by comparison of shifted
views, a window of bytes behind it, one walk of an automaton down the window, and an exact comparison.
There is no loop over rows, and on an accelerator no value read back by the host and no shape that depends on data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from atrl_envs.verify import labels as L
from atrl_envs.verify.automaton import SKIP
from atrl_envs.verify.compaction import squeeze
from atrl_envs.verify.extract import SIGHT_BEFORE, SIGHT_BEHIND, STYLES, Spot, locate, window
from atrl_envs.verify.gold import encode_gold
from atrl_envs.verify.grammar import answer_machine
from atrl_envs.verify.numbers import compare
from atrl_envs.verify.peek import widest
from atrl_envs.verify.scanner import scanner, scanner_machine
from atrl_envs.verify.text import Spelling, Text
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.walk import Tables, balanced, machine_tables, read

WINDOW = 512  # bytes of an answer; a longer one is UNDECIDED
STEPS = 96  # of these, what is left after runs of digits and blanks are shortened

Gold = tuple[Tensor, Tensor]  # digits [B, G] uint8, form [8, B] int64


class MathVerifier:
    """Judges the number in each response against its gold answer.

    vocab: anything with `byte_table` (see `Vocab`) and `eos_id`.
    style: where the answer stands. "plain": the whole response. "gsm8k_hash": the line behind the last `####`.
    "boxed": the last balanced `\\boxed{}`. "answer_tag": the last `<answer>..</answer>`. "last_number".
    Raises ValueError for an unknown style.
    """

    def __init__(self, vocab: Any, style: str = "plain") -> None:
        if style not in STYLES:
            raise ValueError(f"unknown style {style!r}; known styles: {', '.join(STYLES)}")
        self.style = style
        self._spelling = Spelling.of(vocab)
        self._tables = machine_tables(scanner_machine if style == "last_number" else answer_machine)
        self._cut = scanner().cut

    def to(self, device: torch.device | str) -> MathVerifier:
        """The verifier with its tables on `device`; without this, a call on other tensors copies them every time."""
        moved = object.__new__(MathVerifier)
        moved.__dict__.update(self.__dict__)
        moved._spelling = _each_tensor(self._spelling, lambda tensor: tensor.to(device))
        moved._tables = _each_tensor(self._tables, lambda tensor: tensor.to(device))
        return moved

    def encode_answers(self, answers: Sequence[str]) -> TensorDict:
        """Normal forms of gold answers, batch size [M]: digits [M, G] uint8 and form [M, 8] int64, on the CPU.

        A gold that is empty or not one number is kept and marked: its rows get INVALID_GOLD.
        """
        machine = answer_machine()
        golds = [encode_gold(answer, machine) for answer in answers]
        width = 1 + max((len(gold.digits) for gold in golds), default=0)
        shown = b"".join(gold.digits.encode().ljust(width, b"0") for gold in golds)
        digits = torch.frombuffer(bytearray(shown), dtype=torch.uint8) & 15 if golds else torch.empty(0)
        form = torch.tensor([gold.row() for gold in golds], dtype=torch.int64)
        fields = {"digits": digits.to(torch.uint8).view(-1, width), "form": form.view(-1, 8)}
        return TensorDict(fields, batch_size=[len(golds)])

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """Verdicts [B] int8.

        tokens: [B, S] ids; start: [B], where the response begins; end: [B], where it ends at the latest
        (default S); answers: encoded golds, [B]. The response ends before its first EOS, too.
        """
        if tokens.dim() != 2 or start.shape != tokens.shape[:1]:
            raise ValueError(
                f"want tokens [B, S] and start [B], got {list(tokens.shape)} and {list(start.shape)}; "
                "flatten trailing dimensions first"
            )
        spelling, tables = self._beside(tokens)
        digits, form = (_like(answers[name], tokens) for name in ("digits", "form"))
        if tokens.numel() == 0:
            tokens = torch.full((tokens.shape[0], 1), spelling.eos_id, device=tokens.device)
        text = spelling.text(tokens, start, end, keep_gaps=self.style == "plain")
        gold = (digits, form.t())
        if self.style == "last_number":
            return judge_running(text, self._cut, tables, gold)
        return judge_alone(text, self.style, tables, gold)

    def _beside(self, tokens: Tensor) -> tuple[Spelling, Tables]:
        """The tables on the device of the tokens."""
        if tokens.device == self._spelling.table.device and not isinstance(tokens, FakeTensor):
            return self._spelling, self._tables
        records = (self._spelling, self._tables)
        spelling, tables = (_each_tensor(record, lambda t: _like(t, tokens)) for record in records)
        return spelling, tables


def judge_alone(text: Text, style: str, tables: Tables, gold: Gold) -> Tensor:
    """Verdicts [B] int8 of the styles in which the answer stands alone at its spot."""
    plain = style == "plain"
    spot = Spot(text.first, text.stop, ~text.lost, text.lost, text.lost) if plain else locate(style, text)
    room = widest(spot.stop - spot.begin, min(text.data.shape[1], WINDOW))
    letters, extent = window(text, spot, style, room)
    letters = letters[:, : widest(extent, room)].contiguous()
    short, home, crowded = squeeze(letters, STEPS)
    found, code = read(short, tables)
    sound = balanced(found, tables)
    if home is not None:
        found = found.gather(1, home)
    place = torch.arange(1, found.shape[1] + 1, dtype=torch.int32, device=found.device)
    equals = ((found == L.EQUALS).view(torch.uint8) * place).amax(1)
    found = found * (place > equals.unsqueeze(1)).view(torch.uint8)
    verdict = compare(found, letters, gold, tables)
    wrong = code == L.LIST
    if plain:
        # In a bare response figures and marks that are no number are a wrong answer, not an open question.
        rich = tables.rich.index_select(0, letters.view(-1).int()).view(letters.shape)
        wrong = wrong | (rich.sum(1, dtype=torch.int32) == 0)
    other = torch.where(wrong, int(Verdict.WRONG), int(Verdict.UNDECIDED))
    verdict = torch.where((code == L.NUMBER) & sound, verdict, other)
    undecided = crowded | (extent > WINDOW) | spot.doubt | (text.lost & ~spot.found)
    verdict = torch.where(undecided, int(Verdict.UNDECIDED), verdict)
    return _close(verdict, ~undecided & ((code == L.EMPTY) | ~spot.found), gold[1])


def judge_running(text: Text, cut: int, tables: Tables, gold: Gold) -> Tensor:
    """Verdicts [B] int8 of style last_number: the machine marks where numbers end; the last one is compared.

    cut: where the machine begins in a text whose beginning is out of sight.
    """
    spot = locate("last_number", text)
    steps = SIGHT_BEFORE + SIGHT_BEHIND
    letters, _ = window(text, spot, "last_number", steps)
    found, code = read(letters, tables, spot.braced.int() * cut)
    place = torch.arange(1, steps + 1, dtype=torch.int32, device=letters.device)
    doubt = (found == L.DOUBT).view(torch.uint8)
    behind = (found == L.ENDS).view(torch.uint8) | doubt
    at_end = code > 0
    # Positions from 1: the byte behind the last number, and the last byte before it.
    ends = torch.where(at_end, steps + 1, (behind * place).amax(1)).unsqueeze(1)
    doubtful = torch.where(at_end, code != L.NUMBER, (doubt * (place == ends)).amax(1) > 0)
    outside = ((found == L.NONE) & (letters < SKIP)).view(torch.uint8) | behind
    begins = (outside * (place < ends) * place).amax(1).unsqueeze(1)
    found = found * ((place > begins) & (place < ends)).view(torch.uint8)
    verdict = compare(found, letters, gold, tables)
    missing = ends.squeeze(1) == 0
    unsure = doubtful | spot.doubt | ((text.lost | spot.braced) & missing)
    verdict = torch.where(unsure, int(Verdict.UNDECIDED), verdict)
    return _close(verdict, ~unsure & (missing | ~spot.found), gold[1])


def _close(verdict: Tensor, missing: Tensor, form: Tensor) -> Tensor:
    """MISSING and INVALID_GOLD over any other verdict: [B] int8."""
    verdict = torch.where(missing, int(Verdict.MISSING), verdict)
    return torch.where(form[0] == 0, int(Verdict.INVALID_GOLD), verdict).to(torch.int8)


def _like(tensor: Tensor, tokens: Tensor) -> Tensor:
    """A tensor on the device of the tokens; fake where they are fake."""
    if isinstance(tokens, FakeTensor) and not isinstance(tensor, FakeTensor):
        tensor = tokens.fake_mode.from_tensor(tensor)
    return tensor.to(tokens.device)


def _each_tensor(record: Any, change: Any) -> Any:
    """A dataclass with `change` applied to its tensors."""
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return type(record)(**{name: change(v) if isinstance(v, Tensor) else v for name, v in fields.items()})
