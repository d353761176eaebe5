"""Counter-based streams: bit-exact, order-free, and as random as they need to be."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_envs.streams import generator, mix, permuted_index, split_of, uniform

MASK = (1 << 64) - 1
words = st.integers(-(2**63), 2**63 - 1)


def splitmix(seed: int, number: int) -> int:
    """Output `number` of the published splitmix64 generator, written out once more."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_one_key_is_splitmix64() -> None:
    # First outputs of splitmix64 seeded with 1234567, as its author publishes them for testing.
    assert splitmix(1234567, 0) == 6457827717110365317
    assert mix(1234567) & MASK == 6457827717110365317


@given(st.lists(words, min_size=1, max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_ints_and_tensors_agree(values: list[int], data: st.DataObject) -> None:
    as_tensor = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    mixed = [torch.tensor([v]) if t else v for v, t in zip(values, as_tensor, strict=True)]
    result = mix(*mixed)
    assert int(result) == mix(*values)


def test_uniform_is_uniform_and_neighbours_share_nothing() -> None:
    keys = torch.arange(100_000)
    draws = uniform(3, keys, 5)
    assert draws.dtype == torch.float32
    assert 0 <= float(draws.min()) < 1e-4
    assert 1 - 1e-4 < float(draws.max()) < 1
    counts = torch.histc(draws, bins=100, min=0, max=1)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 180  # chi-square, 99 degrees: 1 in 10^6
    for other in (uniform(4, keys, 5), uniform(3, keys + 1, 5), uniform(3, keys, 6)):
        assert abs(float(torch.corrcoef(torch.stack([draws, other]))[0, 1])) < 0.02
        assert int((draws == other).sum()) < 5


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 97, 1000, 10_000])
@pytest.mark.parametrize("key", [0, -1, 12345])
def test_permuted_index_is_a_permutation(size: int, key: int) -> None:
    image = permuted_index(key, torch.arange(size), size)
    assert sorted(image.tolist()) == list(range(size))


def test_permutations_of_four_are_equally_likely() -> None:
    keys = mix(11, torch.arange(48_000))
    images = [permuted_index(keys, torch.full_like(keys, i), 4).tolist() for i in range(4)]
    counts = Counter(zip(*images, strict=True))
    assert len(counts) == 24
    assert sum((count - 2000) ** 2 / 2000 for count in counts.values()) < 70  # 23 degrees: 1 in 10^6


def test_permutation_of_many_looks_random() -> None:
    size = 10_000
    image = permuted_index(5, torch.arange(size), size)
    other = permuted_index(6, torch.arange(size), size)
    assert int((image == torch.arange(size)).sum()) < 10  # Poisson with mean 1
    assert int((image.diff().abs() == 1).sum()) < 14  # mean 2
    assert int((image == other).sum()) < 10
    with pytest.raises(ValueError, match="at least 1"):
        permuted_index(0, torch.arange(1), 0)


def test_generator_depends_on_each_key_only() -> None:
    first = generator(0, "train", 7).integers(2**60, size=4).tolist()
    generator(0, "train", 8).random(1000)
    assert generator(0, "train", 7).integers(2**60, size=4).tolist() == first
    for other in ((1, "train", 7), (0, "test", 7), (0, "train", 8), (7, "train", 0), (-1, "train", 7)):
        assert generator(*other).integers(2**60, size=4).tolist() != first


def test_split_is_a_stable_share_of_prompts() -> None:
    prompts = [f"{i}+{j}=" for i in range(100) for j in range(100)]
    held_out = sum(split_of(prompt, 0.1) == "test" for prompt in prompts)
    assert 850 < held_out < 1150
    assert split_of("12+34=", 0.1) == "train"
    assert {split_of(p, 0.0) for p in prompts} == {"train"}
    assert {split_of(p, 1.0) for p in prompts} == {"test"}
    assert all(split_of(p, 0.3) == "test" for p in prompts if split_of(p, 0.1) == "test")
