"""Value clipping of PPO, which can leave a critic without a gradient."""

from tests.unit.diagnosis.learning.samples import a_training, findings_of

CLIPPED = {"grad_norm__critic": [0.0] * 29 + [40.0], "grad_norm": [0.01] * 29 + [40.0]}


def test_a_critic_that_value_clipping_keeps_from_learning_is_one_finding() -> None:
    held_back = {"ppo__value_clip_fraction": [0.9] * 30, **CLIPPED}
    finding, *others = findings_of(a_training(ppo__value_loss=[90.0] * 30, **held_back)).values()
    assert (finding.code, others) == ("TT605", [])
    assert finding.fix.text.startswith("value clipping leaves the critic no gradient in 90% of the samples")
    assert sorted(folded[:5] for folded in finding.evidence.folded) == ["TT404", "TT406"]
    finding, *others = findings_of(a_training(**held_back)).values()
    assert (finding.code, others) == ("TT406", [])
    assert finding.fix.text.startswith("value clipping leaves the critic no gradient")


def test_a_critic_that_learns_from_most_samples_is_not_reported() -> None:
    assert findings_of(a_training(ppo__value_clip_fraction=[0.3] * 30, **CLIPPED)) == {}
    assert findings_of(a_training(ppo__value_clip_fraction=[0.0] * 30, **CLIPPED)).keys() == {"TT404", "TT406"}
    assert findings_of(a_training(**CLIPPED)).keys() == {"TT404", "TT406"}


def test_value_clipping_explains_neither_an_actor_nor_an_unrelated_explosion() -> None:
    zeros = {"grad_norm__actor": [0.0] * 30, "ppo__value_clip_fraction": [0.3] * 30}
    assert findings_of(a_training(**zeros)).keys() == {"TT406"}
    late = {"grad_norm__critic": [0.0] * 8 + [1.0] * 60, "grad_norm": [0.01] * 8 + [1.0] * 59 + [90.0]}
    assert findings_of(a_training(ppo__value_clip_fraction=[0.3] * 68, **late)).keys() == {"TT404"}
