"""Prompts in the form that a chat model was trained on: its tokenizer's own chat template.

    chat_prompt(vocab, "What is 6*7?", system="Answer with a number.")
    # "<|system|>Answer with a number.<|end|><|user|>What is 6*7?<|end|><|assistant|>", as the tokenizer has it

`Vocab.encode` adds no special tokens and reads those that are written out, so each that the template writes becomes one
id, and the beginning of the text is marked once.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atrl_envs.vocab import Vocab


def chat_prompt(vocab: Vocab, prompt: str, system: str = "") -> str:
    """One user turn, with a system message before it if `system` is given, up to where the assistant begins.

    A template that refuses system messages, or leaves them out, gets the text at the top of the user's turn.
    ValueError where the tokenizer has no template, its template fails or loses the prompt, its special tokens would be
    spelled out, or a special token is written in the prompt or the system text.
    """
    if not vocab.tokenizer.chat_template:
        raise ValueError(
            "the tokenizer has no chat template; leave chat=True and system= out, take the tokenizer of a model tuned "
            "for chat, or set tokenizer.chat_template"
        )
    if vocab.tokenizer.split_special_tokens:
        raise ValueError(
            "the tokenizer spells special tokens out (split_special_tokens=True), so a chat template's marks would be "
            "plain text; set tokenizer.split_special_tokens = False"
        )
    _check_plain(vocab, prompt)
    _check_plain(vocab, system)
    text = _with_system(vocab, prompt, system) if system else None
    if text is None:
        whole = f"{system}\n\n{prompt}" if system else prompt
        try:
            text = _render(vocab, ("user", whole))
        except Exception as error:
            raise ValueError(f"the tokenizer's chat template fails: {error}") from error
    if prompt.strip() not in text:
        raise ValueError(
            f"the tokenizer's chat template loses the prompt {prompt[:60]!r}: it made {text[:200]!r}"
        )
    return text


def _with_system(vocab: Vocab, prompt: str, system: str) -> str | None:
    """The text with a system message; None where the template has no place for one."""
    try:
        text = _render(vocab, ("system", system), ("user", prompt))
    except Exception:  # templates raise what they like: jinja2's errors, TypeError, ...
        return None
    return text if system.strip() in text else None


def _render(vocab: Vocab, *turns: tuple[str, str]) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    return str(vocab.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _check_plain(vocab: Vocab, text: str) -> None:
    """ValueError where a part of the text would be read as a special token."""
    if written := next((token for token in _special_tokens(vocab) if token in text), None):
        raise ValueError(
            f"the text {text[:60]!r} holds {written!r}, which is a special token of this tokenizer and would end or "
            "fake a turn of the chat; reword it"
        )


@functools.lru_cache(maxsize=8)
def _special_tokens(vocab: Vocab) -> tuple[str, ...]:
    tokenizer = vocab.tokenizer
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    return tuple(dict.fromkeys([*map(str, tokenizer.all_special_tokens), *added]))
