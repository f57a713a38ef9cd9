"""What of the environment and the command line may be recorded: an allow-list, and never a secret."""

import re
from collections.abc import Mapping, Sequence

from torchtriage.launch.environment import FOLDER

_ALLOWED = re.compile(
    r"(TORCH|TORCHDYNAMO|TORCHINDUCTOR|TORCH_COMPILE|TORCH_LOGS|TORCH_TRACE|AOT|FUNCTORCH|OMP|MKL|KMP)_?[A-Z0-9_]*$"
    r"|(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|CUDA_VISIBLE_DEVICES|PYTHONHASHSEED|PYTHONOPTIMIZE)$"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH", re.I)


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that bear on torch.compile, never one whose name looks like a secret."""
    return {k: v for k, v in sorted(environ.items()) if _ALLOWED.match(k) and not _SECRET.search(k) and not k.startswith(FOLDER)}


def redacted(words: Sequence[str]) -> list[str]:
    """A command line without the values of flags whose names look like secrets."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        flag, equals, _ = word.partition("=")
        is_secret = word.startswith("-") and bool(_SECRET.search(flag))
        shown.append("***" if hide_next and not word.startswith("-") else f"{flag}=***" if is_secret and equals else word)
        hide_next = is_secret and not equals
    return shown
