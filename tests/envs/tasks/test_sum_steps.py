"""SumSteps: gold responses work the sum out; a share of them answers at once where asked."""

from __future__ import annotations

import pytest

import atrl_envs
from atrl_envs import Verdict, verify_texts


def responses(**task: float) -> tuple[list[str], list[str], list[str]]:
    """Prompts, gold responses and answers of 400 problems."""
    bank = atrl_envs.make("atrl/SumSteps-v0", bank_size=400, **task).bank
    return bank.prompt_texts, bank.response_texts, bank.answer_texts


def test_every_line_adds_the_next_term() -> None:
    for prompt, response, answer in zip(*responses(), strict=True):
        *lines, last = response.split("\n")
        terms = [int(term) for term in prompt.rstrip("=").split("+")]
        total = terms[0]
        for term, line in zip(terms[1:], lines, strict=True):
            assert line == f"{total}+{term}={total + term}"
            total += term
        assert last == f"#### {total}" == f"#### {answer}"


@pytest.mark.parametrize("hasty", [0.3, 1.0])
def test_a_share_answers_at_once_and_is_right(hasty: float) -> None:
    _, found, answers = responses(hasty=hasty)
    share = sum(response.startswith("####") for response in found) / len(found)
    assert share == pytest.approx(hasty, abs=0.1)
    assert set(verify_texts(found, answers, style="gsm8k_hash")) == {Verdict.CORRECT}


def test_haste_is_a_share() -> None:
    with pytest.raises(ValueError, match="hasty between 0 and 1.*got 1.5"):
        atrl_envs.make("atrl/SumSteps-v0", hasty=1.5)
