"""The training loop: rollout, advantages, epochs of minibatches, metrics, telemetry, checkpoint.

    results = Trainer(resolved({"env": "CartPole-v1", "compile": "no"})).train()

Shape suffixes: T steps of a rollout, N environments, O observation size, A action size, S numbers of recurrent state.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import torchtriage
from torchtriage.errors import CommandError, TriageError
from torchtriage.recording.series import CLIP_RANGE, LEARNING_RATE, PPO_KL, STEPS_PER_SECOND
from torchtriage.rl import checkpoint
from torchtriage.rl.compile.choice import CompileChoice
from torchtriage.rl.config import TrainConfig
from torchtriage.rl.engine import Engine, new_environments
from torchtriage.rl.envs.protocol import Outcome
from torchtriage.rl.ppo.evaluation import evaluate
from torchtriage.rl.ppo.rollout import Minibatch, Rollout
from torchtriage.rl.ppo.rollout_normalizer import RolloutNormalizer
from torchtriage.rl.results import Results, Tally
from torchtriage.rl.telemetry import UpdateOutcome, Watch
from torchtriage.telemetry.profiler import TrainingProfiler, training_profiler

MAX_SKIPPED = 3  # updates in a row whose every minibatch was skipped; after that the training cannot recover
EVAL_SEED = 1_000_003  # added to the seed, so that the episodes are not those of the training


class Trainer:
    """One training.

    `should_stop` is called after every update; a run that stops leaves a checkpoint. `beside` names the folders of the
    profile and of that checkpoint if the config does not. `say` is called with messages, `progress` with the step and
    a few numbers.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        say: Callable[[str], None] = lambda _: None,
        progress: Callable[[int, dict[str, float]], None] = lambda *_: None,
        should_stop: Callable[[], bool] = lambda: False,
        beside: str = "train",
    ) -> None:
        self.config, self.say, self.progress, self.should_stop = config, say, progress, should_stop
        self.last_checkpoint: Path | None = None
        self.checkpoints, self.profiles = Path(config.checkpoint or f"{beside}.checkpoint"), Path(f"{beside}.profile")
        if config.threads:
            torch.set_num_threads(config.threads)
        self.engine = Engine(config)
        self.policy, spaces = self.engine.policy, self.engine.environments.spaces
        self.rollout = Rollout(config.steps, config.envs, spaces, self.policy.state_size)
        self.normalizer = RolloutNormalizer(config, spaces.observation_size)
        self.watch = Watch(self.policy, config, getattr(self.engine.environments, "return_threshold", None))
        self.tally = Tally(env=config.env, seed=config.seed)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.lr, self.clip = torch.zeros(()), torch.zeros(())
        self.observation_NO = torch.zeros(0)
        self.state_NS = self.policy.initial_state(config.envs)
        self.keep_N = torch.zeros(config.envs)

    def train(self) -> Results:
        """Train to the end, or until `should_stop` returns true; the recording gets the results either way."""
        config, tally = self.config, self.tally
        try:
            self._begin()
            with training_profiler(self.profiles, enabled=config.profile) as profiler:
                while tally.num_steps < config.total_steps and tally.is_running:
                    began = time.perf_counter()
                    self._collect()
                    last = self._learn()
                    metrics = self.engine.update.read()
                    seconds = time.perf_counter() - began
                    tally.update_ended(config.rollout_size, seconds, self.engine.compile_seconds)
                    self._watch(metrics, last, seconds)
                    self._decide(seconds)
                    self._profile(profiler)
                    torchtriage.step()
                    self._check_skipped()
                    tally.is_running = not self.should_stop()
                    self._checkpoint_if_due()
                    tally.seconds += time.perf_counter() - began
            for path in profiler.traces:
                self.say(f"wrote the profile {path}; look at it in ui.perfetto.dev")
            tally.eval_returns = self._evaluate()
            self.engine.remember_compile()
            return self._results()
        finally:
            self._close()

    def _begin(self) -> None:
        """Start from the first observation, or from a checkpoint."""
        if self.config.resume:
            state, path, notes = checkpoint.load(Path(self.config.resume), self.config)
            try:
                self._load_state(state)
            except TriageError:
                raise
            except Exception as error:  # a state from a file may have any form
                raise CommandError(
                    f"cannot resume from {path}: its state does not fit this training"
                    f" ({type(error).__name__}: {error}); delete it to resume from the one before it, or start again"
                    " without --resume"
                ) from error
            self.last_checkpoint = path
            for note in notes:
                self.say(note)
            self.say(f"resumed from {path}, {self.tally.num_steps:,} steps done")
        else:
            if self.config.checkpoint:
                checkpoint.check_free(self.checkpoints)
            began = time.perf_counter()
            self.observation_NO = self.engine.environments.reset(self.config.seed)
            self.tally.spent("environment", seconds := time.perf_counter() - began)
            self.tally.seconds += seconds
        if self.engine.choice is not None:
            self._say_choice(self.engine.choice)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _collect(self) -> None:
        """T steps of all environments, then advantages and returns."""
        rollout, normalizer, tally = self.rollout, self.normalizer, self.tally
        act, step, clock = self.engine.act, self.engine.environments.step, time.perf_counter
        noise_TNA = self.policy.noise(self.config.steps, self.config.envs, generator=self.generator)
        rollout.state_NS.copy_(self.state_NS)
        policy_seconds = environment_seconds = 0.0
        for t, noise_NA in enumerate(noise_TNA.unbind()):
            input_NO = normalizer.normalize(self.observation_NO, t)
            began = clock()
            action, log_prob_N, value_N, self.state_NS = act(input_NO, self.state_NS, self.keep_N, noise_NA)
            acted = clock()
            outcome = step(action)
            environment_seconds += clock() - acted
            policy_seconds += acted - began
            final_value_N = self._final_values(outcome, noise_NA) if outcome.episodes else None
            rollout.put(t, input_NO, self.keep_N, action, log_prob_N, value_N, outcome.reward_N, outcome, final_value_N)
            tally.episodes_ended(outcome.episodes)
            self.observation_NO, self.keep_N = outcome.observation_NO, (~outcome.starts_N).float()
        last_value_N = act(normalizer.normalize(self.observation_NO), self.state_NS, self.keep_N, noise_TNA[0])[2]
        normalizer.finish(rollout, last_value_N, self.config.gae_lambda)
        tally.spent("policy", policy_seconds)
        tally.spent("environment", environment_seconds)

    def _final_values(self, outcome: Outcome, noise_NA: Tensor) -> Tensor | None:
        """Values of the last observations of truncated episodes, whose returns continue beyond them."""
        if not outcome.truncated_N.any():
            return None
        value_N: Tensor = self.engine.act(
            self.normalizer.normalize(outcome.final_NO), self.state_NS, torch.ones_like(self.keep_N), noise_NA
        )[2]
        return value_N

    def _learn(self) -> Minibatch:
        """Run the epochs of minibatches; return the last minibatch.

        Nothing is read from the device, except, with a target KL, whether to stop.
        """
        config, rollout, update = self.config, self.rollout, self.engine.update
        began = time.perf_counter()
        progress = self.tally.num_steps / config.total_steps
        self.lr.fill_(setting_at(config.lr, config.lr_schedule, progress))
        self.clip.fill_(setting_at(config.clip, config.clip_schedule, progress))
        update.begin(rollout.value_TN, rollout.return_TN, rollout.advantage_TN, rollout.error_TN, rollout.live_TN)
        num_left = config.epochs * config.num_minibatches
        for _ in range(config.epochs):
            for minibatch in rollout.minibatches(self.generator, config.batch):
                num_left -= 1
                if not num_left:
                    self.watch.before_last_minibatch()
                update.run(minibatch, self.lr, self.clip)
            if config.target_kl and update.is_stopped():
                break
        self.tally.spent("update", time.perf_counter() - began)
        return minibatch

    def _watch(self, metrics: dict[str, float], last: Minibatch, seconds: float) -> None:
        tally, config = self.tally, self.config
        numbers = {
            **tally.rollout_metrics(),
            STEPS_PER_SECOND: config.rollout_size / seconds,
            LEARNING_RATE: float(self.lr),
            CLIP_RANGE: float(self.clip),
        }
        self.watch.after_update(
            UpdateOutcome(
                number=tally.num_updates,
                progress=min(1.0, tally.num_steps / config.total_steps),
                metrics=metrics,
                rollout=numbers,
                state_NS=self.state_NS,
                last=last,
                seconds=seconds,
                num_episodes=tally.num_episodes,
                is_skipped=self.engine.update.num_skipped_in_a_row > 0,
            ),
            self.engine.environments,
        )
        tally.seconds_by["telemetry"] = self.watch.seconds
        self.progress(tally.num_steps, {**numbers, "train/approx_kl": metrics.get(PPO_KL, float("nan"))})

    def _profile(self, profiler: TrainingProfiler) -> None:
        began = time.perf_counter()
        profiler.step()  # in the last of its updates it writes the profile, which takes seconds
        self.tally.spent("profile", time.perf_counter() - began)

    def _decide(self, seconds: float) -> None:
        choice = self.engine.decide(self.tally.num_updates, seconds)
        if choice is not None:
            self._say_choice(choice)

    def _say_choice(self, choice: CompileChoice) -> None:
        self.say(f"{'compiling' if choice.compiles else 'not compiling'}: {choice.reason}")
        self.tally.compiled, self.tally.compile_reason = choice.compiles, choice.reason

    def _check_skipped(self) -> None:
        if self.engine.update.num_skipped_in_a_row >= MAX_SKIPPED:
            raise TriageError(
                f"the loss or its gradient was not finite in every minibatch of the last {MAX_SKIPPED} updates, and"
                f" nothing was learned from them (update {self.tally.num_updates}, step {self.tally.num_steps:,});"
                " lower --lr, or normalize observations and rewards; the findings below show what failed first"
            )

    # Checkpoints

    def _checkpoint_if_due(self) -> None:
        config, tally = self.config, self.tally
        is_last = tally.num_steps >= config.total_steps
        is_due = is_last or tally.num_updates % config.checkpoint_every == 0
        if tally.is_running and not (config.checkpoint and is_due):
            return
        began = time.perf_counter()
        try:
            path = checkpoint.save(self.checkpoints, tally.num_updates, config, self._state(), self.last_checkpoint)
        except OSError as error:
            self.say(
                f"no checkpoint at update {tally.num_updates}, the training continues: {error.strerror or error}; "
                f"earlier checkpoints in {self.checkpoints} are complete"
            )
        else:
            self.last_checkpoint = path
            if not tally.is_running:
                self.say(f"wrote {path}; continue with the same flags and: --resume {self.checkpoints}")
        tally.spent("checkpoint", time.perf_counter() - began)

    def _state(self) -> dict[str, Any]:
        """Everything that the next update depends on, and the states of telemetry and results."""
        return {
            "policy": self.policy.state_dict(),
            "update": self.engine.update.state_dict(),
            "scaling": self.normalizer.state_dict(),
            "environments": self.engine.environments.state(),
            "generator": self.generator.get_state(),
            "torch_rng": torch.get_rng_state(),
            "state_NS": self.state_NS,
            "keep_N": self.keep_N,
            "tally": self.tally.state_dict(),
            "watch": self.watch.state_dict(),
            "compiles": None if self.engine.choice is None else self.engine.choice.compiles,
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        if self.engine.choice is None and state["compiles"] is not None:
            self.engine.choose(CompileChoice(compiles=state["compiles"], reason="as before the checkpoint"))
        self.engine.update.load_state_dict(state["update"])
        self.normalizer.load_state_dict(state["scaling"])
        self.observation_NO = self.engine.environments.load_state(state["environments"])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch_rng"])
        for name, now in (("state_NS", self.state_NS), ("keep_N", self.keep_N)):
            if state[name].shape != now.shape or state[name].dtype != now.dtype:
                raise ValueError(f"expected {name} of shape {tuple(now.shape)}, found {tuple(state[name].shape)}")
        self.state_NS, self.keep_N = state["state_NS"], state["keep_N"]
        self.tally.load_state_dict(state["tally"])
        self.watch.load_state_dict(state["watch"])

    # The end

    def _evaluate(self) -> tuple[float, ...]:
        config = self.config
        if not config.eval_episodes or not self.tally.is_running:
            return ()
        environments = new_environments(config, compiles=False)
        try:
            returns: tuple[float, ...] = evaluate(
                self.policy,
                self.engine.act,
                self.normalizer,
                environments,
                config.eval_episodes,
                seed=config.seed + EVAL_SEED,
                deterministic=config.eval_deterministic,
            )
            return returns
        finally:
            environments.close()

    def _results(self) -> Results:
        return self.tally.results(is_complete=self.tally.num_steps >= self.config.total_steps)

    def _close(self) -> None:
        results = self._results().to_dict()
        self.watch.snapshot("results", results)
        self.watch.facts.put(
            name=f"seed {self.config.seed}", train={"config": self.config.changed(), "results": results}
        )
        self.watch.close()
        self.engine.environments.close()


def setting_at(start: float, schedule: str, progress: float) -> float:
    """The value of a setting at `progress` (0 to 1) of the training: constant, or decreasing linearly to 0."""
    return start * (1.0 - min(1.0, progress)) if schedule == "linear" else start
