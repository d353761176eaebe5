"""The kept gallery is what the command writes."""

from __future__ import annotations

import atrl_envs
from atrl_envs.tasks.gallery import PATH, gallery


def test_the_kept_gallery_is_up_to_date() -> None:
    assert PATH.read_text("utf-8") == gallery(), "run python -m atrl_envs.tasks.gallery"


def test_every_task_has_a_short_entry() -> None:
    entries = {text.split("\n", 1)[0]: text for text in PATH.read_text("utf-8").split("\n## ")[1:]}
    assert list(entries) == [id for id in atrl_envs.list_envs() if id.startswith("atrl/")]
    for id, text in entries.items():
        assert len(text.splitlines()) <= 12, id
        if "To the hard one:" in text:
            assert "is CORRECT" in text, id
            assert text.count("CORRECT") == 1, id
