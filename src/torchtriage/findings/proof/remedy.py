"""The sentence about an edit that was verified to cure its finding."""

from torchtriage.findings.model import AgreeingNumbers, RemedyProof
from torchtriage.text import counted, duration

_NUMBERS = {
    AgreeingNumbers.EQUAL: "numbers equal bit for bit",
    AgreeingNumbers.ROUNDING: "numbers equal within rounding",
    AgreeingNumbers.SAME_DRAWS: "numbers equal with the same random draws",
}


def proof_sentence(proof: RemedyProof) -> str:
    """`[safe] ... cures it: numbers equal bit for bit over 8 steps, step 31.0 ms -> 22.4 ms (torch 2.13.0)`."""
    steps = f" over {counted(proof.num_steps, 'step')}" if proof.num_steps else ""
    parts = [f"{_NUMBERS[proof.numbers]}{steps}"]
    if proof.seconds_before is not None and proof.seconds_after is not None:
        interval = ""
        if proof.ratio_low is not None and proof.ratio_high is not None:
            interval = f" (ratio {proof.ratio_low:.3g} to {proof.ratio_high:.3g})"
        parts.append(f"step {duration(proof.seconds_before)} -> {duration(proof.seconds_after)}{interval}")
    name = " ".join(proof.text.split()) or "an edit"
    torch = f" (torch {proof.torch})" if proof.torch else ""
    return f"[{proof.label}] {name} cures it: {', '.join(parts)}{torch}"
