"""A proof as JSON."""

import json

from torchtriage.findings.proof.verdict import Proof
from torchtriage.reporters.proof.location import location_sentence
from torchtriage.reporters.proof.sentences import headline, numbers_sentence, reason_sentence, time_sentence


def render(proof: Proof) -> str:
    data = proof.to_dict()
    for entry, reason in zip(data["reasons"], proof.reasons, strict=True):
        entry["text"] = reason_sentence(reason)
    data["numbers"]["text"] = numbers_sentence(proof.numbers)
    data["time"]["text"] = time_sentence(proof.time)
    if proof.location is not None:
        data["location"]["text"] = location_sentence(proof.location)
    first = ("schema", "verdict", "reasons", "findings", "numbers", "time")
    ordered = {name: data[name] for name in first} | {"text": headline(proof)} | data
    return json.dumps(ordered, indent=1) + "\n"
