"""The parts of the environment and the command line that may be recorded: an allow-list without secrets.

A report that is passed on is redacted further, by findings/redaction.
"""

import re
from collections.abc import Mapping, Sequence

from torchtriage.launch.environment import FOLDER

_ALLOWED = re.compile(
    r"(TORCH|TORCHDYNAMO|TORCHINDUCTOR|TORCH_COMPILE|TORCH_LOGS|TORCH_TRACE|AOT|FUNCTORCH|OMP|MKL|KMP)_?[A-Z0-9_]*$"
    r"|(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|CUDA_VISIBLE_DEVICES|PYTHONHASHSEED|PYTHONOPTIMIZE)$"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH", re.I)


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect torch.compile, without those whose names look like secrets."""
    allowed = {}
    for name, value in sorted(environ.items()):
        if _ALLOWED.match(name) and not _SECRET.search(name) and not name.startswith(FOLDER):
            allowed[name] = value
    return allowed


def redacted(words: Sequence[str]) -> list[str]:
    """A command line without the values of flags whose names look like secrets."""
    result: list[str] = []
    is_value = False        # whether the word before is a secret flag, so that this one is its value
    for word in words:
        flag, equals, _ = word.partition("=")
        is_flag = word.startswith("-")
        is_secret = is_flag and bool(_SECRET.search(flag))
        if is_value and not is_flag:
            result.append("***")
        elif is_secret and equals:
            result.append(f"{flag}=***")
        else:
            result.append(word)
        is_value = is_secret and not equals
    return result
