"""The names of every entry that travels between envs, collectors and agents; the only place that spells them.

from atrl_envs import keys

lengths = tensordict[keys.LENGTH]             # [B, 1] int64
rewards = tensordict[keys.NEXT_REWARD]        # [B, 1] float32
"""

from __future__ import annotations

from typing import Final

NEXT: Final = "next"

# What the env writes: the state of each slot.
TOKENS: Final = "tokens"  # [B, S] int64: prompt, then response, then padding
PROMPT_LENGTH: Final = "prompt_length"  # [B, 1] int64
LENGTH: Final = "length"  # [B, 1] int64: prompt and response together
PROBLEM: Final = "problem"  # [B, 1] int64: row of the bank; -1 in an idle slot
GROUP: Final = "group"  # [B, 1] int64: unique over the run and its workers; -1 in an idle slot
MEMBER: Final = "member"  # [B, 1] int64: 0 .. group_size - 1; -1 in an idle slot

# What the policy writes: one block of tokens per slot.
ACTION: Final = "action"  # [B, K] int64, right-padded
LOG_PROB: Final = "log_prob"  # [B, K] float32, of the distribution that was sampled from
VERSION: Final = "version"  # [B, K] int64: the weights that produced each token

# What the env writes under "next" after a step.
REWARD: Final = "reward"  # [B, 1] float32: 0 until the episode ends
VERDICT: Final = "verdict"  # [B, 1] int8: -1 until the episode ends
REWARD_PARTS: Final = "reward_parts"  # [B, R] float32: the components of the reward before their weights
SCORED: Final = "scored"  # [B, 1] bool: the episode ended and its reward says something about the response
TICKET: Final = "ticket"  # [B, 1] int64: -1, or the number under which the host will give the reward later
DONE: Final = "done"  # [B, 1] bool: terminated or truncated
TERMINATED: Final = "terminated"  # [B, 1] bool: the response ended in EOS
TRUNCATED: Final = "truncated"  # [B, 1] bool: the response hit the length limit

NEXT_TOKENS: Final = (NEXT, TOKENS)
NEXT_PROMPT_LENGTH: Final = (NEXT, PROMPT_LENGTH)
NEXT_LENGTH: Final = (NEXT, LENGTH)
NEXT_PROBLEM: Final = (NEXT, PROBLEM)
NEXT_GROUP: Final = (NEXT, GROUP)
NEXT_MEMBER: Final = (NEXT, MEMBER)
NEXT_REWARD: Final = (NEXT, REWARD)
NEXT_VERDICT: Final = (NEXT, VERDICT)
NEXT_REWARD_PARTS: Final = (NEXT, REWARD_PARTS)
NEXT_SCORED: Final = (NEXT, SCORED)
NEXT_TICKET: Final = (NEXT, TICKET)
NEXT_DONE: Final = (NEXT, DONE)
NEXT_TERMINATED: Final = (NEXT, TERMINATED)
NEXT_TRUNCATED: Final = (NEXT, TRUNCATED)

# What a finished episode and a training batch carry besides.
RESPONSE_MASK: Final = "response_mask"  # [S] bool: the tokens that the policy wrote
ADVANTAGE: Final = "advantage"  # [N] or [N, T] float32
