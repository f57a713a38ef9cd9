"""The setting in TORCHTRIAGE_PROOF, under which a run of `torchtriage verify` is started."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSetting:
    """What a run is forced to do and what it records; a field that is not set leaves the program as it is."""

    seed: int = 0
    steps: int = 0              # end the program after this many optimizer steps; 0: run to its end
    eager: bool = False         # run what is compiled eager
    as_compiled: bool = False   # with `eager`: take the branches of is_compiling() that compiled code takes
    draws: str = ""             # how random values are arranged, see arranged_draws; empty: as the program draws them
    rounding: int = 0           # move the result of each operation by one rounding; the seed of the signs, 0: do not
    paused: str = ""            # the file with the seconds the process was paused, if it takes turns with others

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value})


def parse_setting(text: str) -> ProofSetting:
    """The setting in this JSON; ValueError names the first problem."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError("it must be a JSON object")
    kinds = {field.name: type(getattr(ProofSetting(), field.name)) for field in fields(ProofSetting)}
    for key, value in data.items():
        if key not in kinds:
            raise ValueError(f'"{key}" is not a field of a proof')
        if type(value) is not kinds[key]:
            raise ValueError(f'"{key}" must be of type {kinds[key].__name__}')
    return ProofSetting(**data)
