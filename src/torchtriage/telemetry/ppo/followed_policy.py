"""Follows the PPO updates of a program that does not use telemetry, from the graphs of its losses."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torchtriage.telemetry.observation import Observation
from torchtriage.telemetry.ppo.episodes import EnvironmentStep, Episodes
from torchtriage.telemetry.ppo.loss_terms import LossTerms, read_terms
from torchtriage.telemetry.ppo.policy_contracts import PolicyContracts
from torchtriage.telemetry.ppo.policy_update import FollowedMinibatch, PolicyUpdate, update_values

# Until a PPO loss was seen the graph is read in these backward passes, and then in every power of two.
EARLY_LOOKS = 8
MAX_MINIBATCHES = 64    # of an update that are read
# Entries to torch.no_grad() between two backward passes that show that the policy acted: a minibatch makes one or two,
# for its KL divergence. Rollouts are about equally long.
MIN_ACTS = 6
ROLLOUT_SHARE = 0.5
# Some rollouts are one function under no_grad(). They are taken for the most entries, where most backward passes have
# fewer; but so may be a look at the KL divergence at the end of an epoch, after which the ratio is not 1.
MIN_BACKWARDS = 4
SAME_RATIO = 1e-2
MAX_REFUSED = 32        # epochs of an update at most; if the ratio was never 1 again, that is the fault itself
BUDGET = 0.005          # share of the processor time of the thread, once the grace is used up
GRACE_SECONDS = 0.25
MAX_QUEUE = 256


class FollowedPolicy:
    """Called by the taps. It reads whole updates; between two of them it only counts."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.episodes = Episodes()
        self.contracts = PolicyContracts()
        self._clock = clock
        self._num_backwards = 0
        self._most_acts = 0
        self._num_acts = 0              # since the last backward pass
        self._acts: deque[int] = deque(maxlen=32)       # before each of the last backward passes
        self._is_guessed = False        # that a rollout came before the next policy loss
        self._begins_at_one = False     # the ratios of the first policy loss
        self._may_guess = True
        self._num_refused = 0           # guesses after which the ratio was not 1
        self._may_refuse = False        # it began at 1 again after another guess
        self._num_rollouts = 0
        self._has_environments = False  # their steps show the rollouts
        self._is_after_rollout = False  # and no loss of the policy was seen since
        self._is_policy = False         # a PPO loss was seen
        self._is_reading = True         # the current update is read
        self._update: PolicyUpdate | None = None
        self._pending: LossTerms | None = None      # of losses without a policy term, since the last one with it
        self._finished: deque[PolicyUpdate] = deque(maxlen=MAX_QUEUE)
        self._began = clock()
        self._own_seconds = 0.0

    @property
    def is_found(self) -> bool:
        """Whether a PPO loss was seen."""
        return self._is_policy

    def rollout(self, num_acts: int, steps: Sequence[tuple[Any, ...]]) -> None:
        """What was seen since the last backward pass: entries to no_grad(), and steps of environments."""
        if steps:
            self._has_environments = True
            self.episodes.add(EnvironmentStep(*step) for step in steps)
        elif self._has_environments or num_acts < max(MIN_ACTS, ROLLOUT_SHARE * self._most_acts):
            self._num_acts = num_acts
            self._is_guessed = self._may_be_rollout(num_acts)
            if self._is_guessed and self._is_policy:
                self._is_reading = self._may_read()
                if not self._is_reading:
                    self._finish()
            return
        self._num_acts = num_acts
        self._most_acts = max(self._most_acts, num_acts)
        self._is_after_rollout = True
        self._num_rollouts += 1
        if self._is_policy:
            self._finish()
            self._is_reading = self._may_read()

    def backward(self, loss: torch.Tensor, step: int) -> None:
        """Before the backward pass of a loss."""
        self._num_backwards += 1
        self._acts.append(self._num_acts)
        self._num_acts = 0
        number = self._num_backwards
        if self._is_policy:
            is_due = self._is_reading and (self._num_rollouts > 0 or self._may_read())
        else:
            is_due = number <= EARLY_LOOKS or not number & (number - 1)
        if is_due:
            began = self._clock()
            self._read(loss, step)
            self._own_seconds += self._clock() - began
        elif not self._is_policy:
            self._is_after_rollout = False

    def observations(self, wait: bool = False) -> Iterator[Observation]:
        """On the background thread: the series of the updates that were read."""
        if wait:
            self._finish()
        while self._finished:
            update = self._finished.popleft()
            self.contracts.judge(update)
            yield Observation(step=update.step, time=time.time(), values=update_values(update))

    # Reading

    def _may_read(self) -> bool:
        """Whether reading has cost less than its share of the time so far."""
        allowed = max(GRACE_SECONDS, BUDGET * (self._clock() - self._began))
        return self._own_seconds < allowed

    def _may_be_rollout(self, num_acts: int) -> bool:
        """Whether entries to no_grad() that are too few to be acts may be one rollout each."""
        if self._has_environments or self._most_acts >= MIN_ACTS or not self._may_guess:
            return False
        if len(self._acts) < MIN_BACKWARDS:
            return False
        return num_acts >= max(self._acts) and num_acts > sorted(self._acts)[len(self._acts) // 2]

    def _accept_guess(self, ratio_N: torch.Tensor) -> None:
        """Begin an update where a rollout was guessed and the ratio is as in the first one."""
        is_first = not self._is_policy
        if not (is_first or self._is_guessed):
            return
        is_one = bool(((ratio_N - 1.0).abs() <= SAME_RATIO).all())
        if is_first:
            self._begins_at_one = is_one
            self._may_guess = self._num_backwards <= EARLY_LOOKS        # it is the first one, not only the first seen
        elif is_one or not self._begins_at_one or (self._num_refused >= MAX_REFUSED and not self._may_refuse):
            self._may_refuse = self._may_refuse or is_one
            self._finish()
            self._num_rollouts += 1
            self._is_after_rollout = True
        else:
            self._num_refused += 1
        self._is_guessed = False

    def _read(self, loss: torch.Tensor, step: int) -> None:
        terms = read_terms(loss)
        surrogate = terms.surrogate
        if surrogate is None:
            self._add_to_last(terms)
            return
        self._accept_guess(surrogate.ratio_N)
        self._is_policy = True
        update = self._update
        if update is None or self._is_after_rollout:
            update = self._update = PolicyUpdate(
                step=step, number=self._num_rollouts, is_start_known=self._is_after_rollout,
            )
            self.episodes.describe(update)
        self._is_after_rollout = False
        if len(update.minibatches) < MAX_MINIBATCHES:
            parameter = surrogate.parameter
            weights = None if parameter is None else parameter.detach().clone()
            update.minibatches.append(FollowedMinibatch(terms=terms, weights=weights))

    def _add_to_last(self, terms: LossTerms) -> None:
        """The value loss may have a separate backward pass."""
        update = self._update
        if update is not None and update.minibatches and not update.minibatches[-1].terms.errors:
            update.minibatches[-1].terms.errors += terms.errors

    def _finish(self) -> None:
        update, self._update = self._update, None
        if update is not None and update.minibatches:
            update.on_host()
            self._finished.append(update)
