"""From text to text with tokenizers of four families: env, policy, verifier and model speak one vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as token_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from atrl_agents import models
from atrl_agents.config import EnvConfig, GRPOConfig, WarmupConfig
from atrl_agents.evaluate import collect
from atrl_agents.warmup import warm_up
from atrl_agents.workers import EnvRecipe, sampling_policy
from atrl_envs import keys
from atrl_envs.verify import Verdict
from atrl_envs.vocab import Vocab
from tests.envs import tokenizers_built

SUMS = [f"{a}+{b}={a + b}" for a in range(10) for b in range(10)]


def unigram() -> PreTrainedTokenizerFast:
    """As T5 and many SentencePiece models: the likeliest pieces, spaces as "▁", unknown characters as bytes."""
    backend = Tokenizer(token_models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.decoder = decoders.Metaspace(prepend_scheme="never")
    special = ["<unk>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(SUMS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def word_piece() -> PreTrainedTokenizerFast:
    """As BERT: words, and "##" before what continues one."""
    backend = Tokenizer(token_models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False)
    backend.train_from_iterator(SUMS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]"
    )


FAMILIES: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level BPE": tokenizers_built.byte_level,
    "SentencePiece BPE with byte fallback, padding is EOS": tokenizers_built.sentence_piece,
    "Unigram, padding is EOS": unigram,
    "WordPiece": word_piece,
    "characters": lambda: Vocab.characters().tokenizer,
}


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path) -> Path:
    """A tiny model with a tokenizer of the family, its embedding wider than the tokenizer, as many are."""
    torch.manual_seed(0)
    tokenizer = FAMILIES[request.param]()
    config = LlamaConfig(
        vocab_size=max(tokenizer.get_vocab().values()) + 8, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_from_text_to_text(folder):
    torch.set_num_threads(1)
    config = GRPOConfig(
        env=EnvConfig(kwargs={"low": 0, "high": 9}, block_size=2, max_new_tokens=5), mode="sync",
        model=str(folder), prompts_per_batch=8, samples_per_prompt=4,
    )  # fmt: skip
    model, vocab = models.load(str(folder))
    assert vocab.size == model.config.vocab_size > max(vocab.tokenizer.get_vocab().values()) + 1
    env = EnvRecipe(config, vocab)()
    policy = sampling_policy(model, vocab, config, env.max_new_tokens)
    # half taught, so that there are right answers and wrong ones
    warm_up(
        policy,
        env.bank,
        WarmupConfig(batch_size=32, learning_rate=5e-3, until=0.4, anneal_steps=10),
        steps=200,
        seed=0,
    )
    episodes = collect(env, policy, groups=24)
    seen = set()
    for row in episodes:
        problem, start, end = (int(row[key]) for key in (keys.PROBLEM, keys.PROMPT_LENGTH, keys.LENGTH))
        prompt, answer = env.bank.prompt_texts[problem], env.bank.answer_texts[problem]
        ids = row[keys.TOKENS].tolist()
        assert "".join(vocab.decode(ids[:start]).split()) == prompt, "the model was asked what the task asks"
        text = vocab.decode(ids[start:end])
        verdict = Verdict(int(row[keys.VERDICT]))
        assert (verdict == Verdict.CORRECT) == (text.strip() == answer), (text, answer, verdict)
        assert float(row[keys.REWARD]) == float(verdict == Verdict.CORRECT)
        ended = ids[end - 1] == vocab.eos_id
        assert ended != bool(row[keys.TRUNCATED]) and (ended or end - start == 5)
        assert vocab.eos_id not in ids[start : end - 1]
        seen.add(verdict == Verdict.CORRECT)
    assert seen == {True, False}, "both right and wrong answers were judged"
    out = policy.response_log_probs(
        episodes[keys.TOKENS], episodes[keys.PROMPT_LENGTH], episodes[keys.LENGTH]
    )
    torch.testing.assert_close(out.log_prob, episodes[keys.LOG_PROB], atol=1e-4, rtol=0)
