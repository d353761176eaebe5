"""Small tokenizers of every family, built here: what a hub would give, without a hub."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "the sum of 12 and 34 is 46.",
    "so x = \\boxed{7}, isn't it?",
    "naïve café 3 − 4 = −1",
    "#### 42\n",
] * 3


def byte_level() -> PreTrainedTokenizerFast:
    """As GPT-2, Llama 3 and Qwen: bytes, merged; added tokens both special and not."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(["<|end|>", "<|pad|>"])
    backend.add_tokens([AddedToken("<think>", normalized=False), AddedToken("   ", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")


def sentence_piece() -> PreTrainedTokenizerFast:
    """As Llama 2 and Gemma: spaces as "▁", unknown characters as bytes; no padding token."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    plain = Tokenizer.from_str(_without_added_bytes(backend.to_str()))
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="</s>", bos_token="<s>", unk_token="<unk>"
    )


def word_piece() -> PreTrainedTokenizerFast:
    """As BERT: words and "##" continuations; unknown words become one token."""
    words = [
        "[PAD]",
        "[UNK]",
        "[SEP]",
        "the",
        "sum",
        "is",
        "12",
        "34",
        "##6",
        "4",
        "##s",
        ".",
        ",",
        "?",
        "i",
        "##sn",
    ]
    backend = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]"
    )


def dropping() -> PreTrainedTokenizerFast:
    """A tokenizer without an unknown token: what it does not know vanishes."""
    backend = Tokenizer(models.BPE({"<eos>": 0, "1": 1, "2": 2, "+": 3}, []))
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


def without_decoder() -> PreTrainedTokenizerFast:
    """Whole words, which `tokenizers` joins by spaces."""
    backend = Tokenizer(models.WordLevel({"<eos>": 0, "a": 1, "b": 2, "<unk>": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>")


def _without_added_bytes(description: str) -> str:
    """Byte tokens belong to the model, not to the added tokens that the trainer makes of them."""
    import json

    parts: dict[str, Any] = json.loads(description)
    parts["added_tokens"] = [t for t in parts["added_tokens"] if not t["content"].startswith("<0x")]
    return json.dumps(parts)
