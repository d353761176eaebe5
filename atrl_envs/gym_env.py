"""The same environments for Gymnasium: one at a time, or natively batched.

    one = gymnasium.make("atrl_envs:atrl/Addition-v0", render_mode="ansi")
    many = gymnasium.make_vec("atrl_envs:atrl/Addition-v0", num_envs=64)

Keyword arguments are the options of `atrl_envs.make`. An action is one token, or a row of `block_size` tokens.
Seeding restarts the stream of problems; a reset without a seed goes on with the next problem.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import TensorDictBase

from atrl_envs import keys
from atrl_envs.env import VerifiableEnv
from atrl_envs.registry import EnvMaker, get_spec
from atrl_envs.verify import Verdict

_OBSERVED = (keys.TOKENS, keys.PROMPT_LENGTH, keys.LENGTH)


class TokenEnv(gymnasium.Env):
    """One slot as a gymnasium.Env.

    Action space: Discrete(vocabulary), or MultiDiscrete of `block_size` tokens. Observation space: Dict of `tokens`
    [S], `prompt_length` and `length`. Reward: 1.0 at the end of a correct response, else 0.0. Info: `problem`,
    `group`, `member`; at the end also `verdict`, `response` and `answer`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self, env_id: str, module: str | None = None, render_mode: str | None = None, **options: Any
    ) -> None:
        if options.setdefault("num_envs", 1) != 1:
            raise ValueError(f"gymnasium.make makes one env; for num_envs={options['num_envs']} use make_vec")
        _check_render_mode(render_mode)
        self.render_mode = render_mode
        self.env = EnvMaker(get_spec(env_id, module), **options)()
        self.observation_space = _observation_space(self.env)
        self.action_space = _action_space(self.env)
        self._state: TensorDictBase | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.env.set_seed(seed)
        self._state = self.env.reset()
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        block = torch.as_tensor(numpy.asarray(action, dtype=numpy.int64)).reshape(1, self.env.block_size)
        self._state = self.env.step(self._state.set(keys.ACTION, block))[keys.NEXT]
        terminated, truncated = bool(self._state[keys.TERMINATED]), bool(self._state[keys.TRUNCATED])
        info = self._info()
        if terminated or truncated:
            info[keys.VERDICT] = Verdict(int(self._state[keys.VERDICT])).name
            info["response"] = response_texts(self.env, self._state)[0]
            info["answer"] = self.env.bank.answer_texts[info[keys.PROBLEM]]
        return self._observation(), float(self._state[keys.REWARD]), terminated, truncated, info

    def render(self) -> str | None:  # type: ignore[override]
        """The prompt, the response so far, and the verdict once there is one (mode "ansi")."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the env with render_mode="ansi"')
            return None
        return "" if self._state is None else transcripts(self.env, self._state)[0]

    def _observation(self) -> dict[str, Any]:
        assert self._state is not None
        tokens, *lengths = (self._state[name][0].numpy().copy() for name in _OBSERVED)
        return {keys.TOKENS: tokens, keys.PROMPT_LENGTH: lengths[0][0], keys.LENGTH: lengths[1][0]}

    def _info(self) -> dict[str, Any]:
        assert self._state is not None
        return {name: int(self._state[name]) for name in (keys.PROBLEM, keys.GROUP, keys.MEMBER)}


class TokenVectorEnv(VectorEnv):
    """`num_envs` slots as a gymnasium VectorEnv, stepped together by tensor operations.

    Autoreset mode NEXT_STEP: the step after an episode's end ignores that slot's action, starts its next problem,
    and pays 0. Info arrays: `problem`, `group`, `member`, and `verdict` (-1 while an episode runs).
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["ansi"],
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        env_id: str,
        module: str | None = None,
        num_envs: int = 1,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        _check_render_mode(render_mode)
        self.render_mode, self.num_envs = render_mode, num_envs
        self.env = EnvMaker(get_spec(env_id, module), num_envs=num_envs, **options)()
        self.single_observation_space = _observation_space(self.env)
        self.single_action_space = _action_space(self.env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: TensorDictBase | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.env.set_seed(seed)
        self._state = self.env.reset()
        return self._observation(), self._info()

    def step(self, actions: Any) -> tuple[dict[str, Any], Any, Any, Any, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        block = torch.as_tensor(numpy.asarray(actions, dtype=numpy.int64))
        block = block.reshape(self.num_envs, self.env.block_size)
        ended = self._state[keys.DONE].clone()
        state = self.env.step(self._state.set(keys.ACTION, block))[keys.NEXT]
        if ended.any():
            reward = state[keys.REWARD].masked_fill(ended, 0.0)
            state = self.env.reset(state.clone().set("_reset", ended), select_reset_only=True)
            state[keys.REWARD] = reward
        self._state = state
        flags = (self._flat(name).copy() for name in (keys.TERMINATED, keys.TRUNCATED))
        return self._observation(), self._flat(keys.REWARD).astype(numpy.float64), *flags, self._info()  # type: ignore[return-value]

    def render(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """Prompt, response and verdict of every slot (mode "ansi")."""
        if self.render_mode is None or self._state is None:
            return None
        return tuple(transcripts(self.env, self._state))

    def _observation(self) -> dict[str, Any]:
        assert self._state is not None
        observed = {keys.TOKENS: self._state[keys.TOKENS].numpy().copy()}
        return observed | {name: self._flat(name).copy() for name in _OBSERVED[1:]}

    def _info(self) -> dict[str, Any]:
        shown = (keys.PROBLEM, keys.GROUP, keys.MEMBER, keys.VERDICT)
        return {name: self._flat(name).copy() for name in shown}

    def _flat(self, name: str) -> numpy.ndarray:
        assert self._state is not None
        return self._state[name].squeeze(-1).numpy()


def response_texts(env: VerifiableEnv, state: TensorDictBase) -> list[str]:
    """What each slot has written so far."""
    rows = zip(state[keys.TOKENS], state[keys.PROMPT_LENGTH], state[keys.LENGTH], strict=True)
    return [env.vocab.decode(tokens[int(start) : int(end)]) for tokens, start, end in rows]


def transcripts(env: VerifiableEnv, state: TensorDictBase) -> list[str]:
    """Prompt, response and, at the end, verdict of each slot: "12+34=46 [CORRECT]"."""
    texts = []
    for row, response in enumerate(response_texts(env, state)):
        prompt = env.vocab.decode(state[keys.TOKENS][row, : int(state[keys.PROMPT_LENGTH][row])])
        verdict = int(state[keys.VERDICT][row])
        texts.append(prompt + response + (f" [{Verdict(verdict).name}]" if verdict >= 0 else ""))
    return texts


def _check_render_mode(mode: str | None) -> None:
    if mode not in (None, "ansi"):
        raise ValueError(f'render_mode must be "ansi" or None, got {mode!r}')


def _observation_space(env: VerifiableEnv) -> spaces.Dict:
    return spaces.Dict(
        {
            keys.TOKENS: spaces.Box(0, env.vocab.size - 1, (env.sequence_length,), numpy.int64),
            keys.PROMPT_LENGTH: spaces.Discrete(env.max_prompt_length + 1),
            keys.LENGTH: spaces.Discrete(env.sequence_length + 1),
        }
    )


def _action_space(env: VerifiableEnv) -> spaces.Space[Any]:
    if env.block_size == 1:
        return spaces.Discrete(env.vocab.size)
    return spaces.MultiDiscrete([env.vocab.size] * env.block_size)
