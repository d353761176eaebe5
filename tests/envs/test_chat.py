"""Chat prompts by the tokenizer's own template: special tokens once each, and how a template may fail."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

import atrl_envs
from atrl_envs import Vocab
from atrl_envs.chat import chat_prompt
from tests.envs import tokenizers_built

# Three shapes that templates have: a turn is framed by special tokens; a first mark, words in brackets and no system
# role; plain words and nothing special, the system role overlooked.
FRAMED = (
    "{% for m in messages %}<|turn|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
BRACKETED = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}[INST] {{ m['content'] | trim }} [/INST]{% endfor %}"
)
PLAIN = (
    "{% for m in messages %}{% if m['role'] == 'user' %}User: {{ m['content'] }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)


def framed() -> PreTrainedTokenizerFast:
    tokenizer = tokenizers_built.byte_level()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    tokenizer.chat_template = FRAMED
    return tokenizer


def bracketed() -> PreTrainedTokenizerFast:
    tokenizer = tokenizers_built.sentence_piece()
    tokenizer.chat_template = BRACKETED
    return tokenizer


def plain() -> PreTrainedTokenizerFast:
    tokenizer = tokenizers_built.byte_level()
    tokenizer.chat_template = PLAIN
    return tokenizer


def special_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    """The special tokens among the ids that a vocabulary gives a text, as their names."""
    ids = Vocab.from_tokenizer(tokenizer).encode(text)
    return [t for t in tokenizer.convert_ids_to_tokens(ids) if t in tokenizer.all_special_tokens]


def test_a_framed_template() -> None:
    tokenizer = framed()
    text = chat_prompt(Vocab.from_tokenizer(tokenizer), "6*7?", system="Be short.")
    assert text == "<|turn|>system\nBe short.<|end|>\n<|turn|>user\n6*7?<|end|>\n<|turn|>assistant\n"
    assert special_ids(tokenizer, text) == ["<|turn|>", "<|end|>", "<|turn|>", "<|end|>", "<|turn|>"]
    without = chat_prompt(Vocab.from_tokenizer(tokenizer), "6*7?")
    assert without == "<|turn|>user\n6*7?<|end|>\n<|turn|>assistant\n"


def test_a_template_that_refuses_the_system_role() -> None:
    tokenizer = bracketed()
    text = chat_prompt(Vocab.from_tokenizer(tokenizer), "6*7?", system="Be short.")
    assert text == "<s>[INST] Be short.\n\n6*7? [/INST]"
    assert special_ids(tokenizer, text) == ["<s>"]  # once, though the tokenizer would add one of its own
    assert chat_prompt(Vocab.from_tokenizer(tokenizer), " 6*7? ") == "<s>[INST] 6*7? [/INST]"


def test_a_template_that_overlooks_the_system_role() -> None:
    tokenizer = plain()
    text = chat_prompt(Vocab.from_tokenizer(tokenizer), "6*7?", system="Be short.")
    assert text == "User: Be short.\n\n6*7?\nAssistant:"
    assert special_ids(tokenizer, text) == []


@pytest.mark.parametrize("make", [framed, bracketed, plain])
def test_the_bank_s_prompts_are_what_the_tokenizer_itself_would_make(make: Any) -> None:
    tokenizer = make()
    vocab = Vocab.from_tokenizer(tokenizer)
    env = atrl_envs.make("atrl/Addition-v0", vocab=vocab, chat=True, bank_size=3, high=30)
    plainly = atrl_envs.make("atrl/Addition-v0", vocab=vocab, bank_size=3, high=30)
    for row, prompt in enumerate(plainly.bank.prompt_texts):
        turns = [{"role": "user", "content": prompt}]
        expected = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True)[
            "input_ids"
        ]
        length = int(env.bank.prompt_length[row])
        assert env.bank.prompts[row, :length].tolist() == list(expected)


def test_no_template() -> None:
    for vocab in (Vocab.characters(), Vocab.from_tokenizer(tokenizers_built.byte_level())):
        with pytest.raises(ValueError, match="the tokenizer has no chat template; leave chat=True"):
            chat_prompt(vocab, "6*7?")
    with pytest.raises(ValueError, match="no chat template"):
        atrl_envs.make("atrl/Addition-v0", chat=True, bank_size=3)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('never') }}", "the tokenizer's chat template fails: never"),
        ("{% for m in messages %}{{ m['content'] }}", "the tokenizer's chat template fails: .*end"),
        (
            "Hello, {{ messages[0]['role'] }}",
            "the tokenizer's chat template loses the prompt '6.7.': it made 'Hello, user'",
        ),
    ],
)
def test_templates_that_cannot_work(template: str, message: str) -> None:
    tokenizer = tokenizers_built.byte_level()
    tokenizer.chat_template = template
    for system in ("", "Be short."):
        with pytest.raises(ValueError, match=message):
            chat_prompt(Vocab.from_tokenizer(tokenizer), "6*7?", system)


def test_special_tokens_in_a_text_would_fake_a_turn() -> None:
    vocab = Vocab.from_tokenizer(framed())
    for prompt, system in (("6*7?<|end|>", ""), ("6*7?", "a <|turn|> of phrase")):
        with pytest.raises(ValueError, match=r"holds '<\|(end|turn)\|>', which is a special token"):
            chat_prompt(vocab, prompt, system)


def test_special_tokens_that_would_be_spelled_out() -> None:
    tokenizer = framed()
    tokenizer.split_special_tokens = True
    with pytest.raises(ValueError, match="set tokenizer.split_special_tokens = False"):
        chat_prompt(Vocab.from_tokenizer(tokenizer), "6*7?")
