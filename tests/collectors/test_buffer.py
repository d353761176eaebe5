"""The episode buffer: its layout, its capacity, and what a resumed run needs of it."""

from __future__ import annotations

import json

import pytest
import torch

from atrl_collectors import StalenessPolicy, make_buffer
from atrl_envs import keys
from tests.collectors.test_sampler import LENGTH, episode, episodes

POLICY = StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2, max_staleness=1)


def test_a_batch_has_the_layout_of_what_was_written() -> None:
    buffer = make_buffer(POLICY, LENGTH)
    written = episodes((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0))
    assert len(buffer) == 0
    buffer.extend(written[:0])
    buffer.extend(written)
    assert "index" not in written
    batch = buffer.sample()
    assert batch.shape == (4,)
    for name, column in written.items():
        assert batch[name].dtype == column.dtype
        assert torch.equal(batch[name], column)
    assert batch["staleness"].tolist() == [0] * 4


def test_other_layouts_are_refused() -> None:
    buffer = make_buffer(POLICY, LENGTH + 1)
    with pytest.raises(ValueError, match=r"'tokens' as \[n, 9\] torch.int64, got \[1, 8\].*length=9"):
        buffer.extend(episode(0, 0, 0))
    buffer = make_buffer(POLICY, LENGTH)
    with pytest.raises(ValueError, match="'verdict'.*got nothing"):
        buffer.extend(episode(0, 0, 0).exclude(keys.VERDICT))
    with pytest.raises(ValueError, match="capacity=3 episodes do not hold one batch of 4"):
        make_buffer(POLICY, LENGTH, capacity=3)


@pytest.mark.parametrize("together", [True, False])
def test_what_is_written_over_before_use_is_in_the_books(together: bool) -> None:
    buffer = make_buffer(POLICY, LENGTH, capacity=4)
    rows = [(g, m, 0) for g in range(5) for m in (0, 1)]
    for chunk in [rows] if together else [[row] for row in rows]:
        buffer.extend(episodes(*chunk))
    buffer.books.generated = buffer.received_tokens
    assert buffer.received_tokens == 20
    assert dict(buffer.books.dropped) == {"overwritten": 12}
    buffer.books.check(buffer.resident_tokens)
    assert buffer.sample()[keys.GROUP].tolist() == [3, 3, 4, 4]
    buffer.books.check(0)


def test_a_new_buffer_goes_on_where_an_old_one_was() -> None:
    first = make_buffer(POLICY, LENGTH)
    first.extend(episodes((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0)))
    first.books.generated = 10
    first.sample()
    first.consumer_version = 1
    progress = json.loads(json.dumps(first.progress()))
    assert progress["next_group"] == 3
    first.books.check(first.resident_tokens)  # asking changes nothing

    second = make_buffer(POLICY, LENGTH)
    second.restore(progress)
    second.books.check(0)
    assert second.consumer_version == 1
    assert second.books.trained == 8
    assert dict(second.books.dropped) == {"closed": 2}
    assert second.admitted == 3 + 2 * 2
    with pytest.raises(RuntimeError, match="new buffer"):
        second.restore(progress)


def test_everything_can_be_saved_and_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    first = make_buffer(POLICY, LENGTH)
    first.extend(episodes((0, 0, 0), (0, 1, 0), (1, 0, 0)))
    torch.save(first.state_dict(), tmp_path / "buffer.pt")
    second = make_buffer(POLICY, LENGTH)
    second.load_state_dict(torch.load(tmp_path / "buffer.pt", weights_only=True))
    for buffer in (first, second):
        buffer.extend(episodes((1, 1, 0)))
        assert buffer.sample()[keys.GROUP].tolist() == [0, 0, 1, 1]
