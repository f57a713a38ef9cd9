"""What may be recorded of the environment or the command line: listed variables, words without secrets.

A report that is passed on is redacted further, by findings/redaction.
"""

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"

# By their whole names: a prefix such as TORCHINDUCTOR_ would also let in TORCHINDUCTOR_REDIS_URL.
_VARIABLES = frozenset({
    "AOT_PARTITIONER_DEBUG", "ATEN_CPU_CAPABILITY", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "GROUP_RANK",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_SETTINGS", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MKL_DYNAMIC", "MKL_NUM_THREADS",
    "NODE_RANK", "OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND",
    "OMP_SCHEDULE", "OMP_WAIT_POLICY", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "RANK", "TORCHDYNAMO_AUTO_FUNCTIONALIZED_V2",
    "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS", "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS", "TORCHDYNAMO_DEBUG_FUNCTION",
    "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_DYNAMIC_SHAPES", "TORCHDYNAMO_EXTENDED_DEBUG_CPP",
    "TORCHDYNAMO_EXTENDED_DEBUG_CREATE_SYMBOL", "TORCHDYNAMO_EXTENDED_DEBUG_GUARD_ADDED",
    "TORCHDYNAMO_INLINE_INBUILT_NN_MODULES", "TORCHDYNAMO_NO_DATA_DEPENDENT_GRAPH_BREAK",
    "TORCHDYNAMO_PREPARE_FREEZING", "TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL", "TORCHDYNAMO_SUPPRESS_ERRORS",
    "TORCHDYNAMO_VERBOSE", "TORCHINDUCTOR_AUTOGRAD_CACHE", "TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC",
    "TORCHINDUCTOR_BENCHMARK_FUSION", "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "TORCHINDUCTOR_CPP_WRAPPER", "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCHINDUCTOR_DEBUG_COMPILE", "TORCHINDUCTOR_DETERMINISTIC", "TORCHINDUCTOR_DISABLED_PASSES",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_FX_GRAPH_CACHE",
    "TORCHINDUCTOR_GRAPH_PARTITION", "TORCHINDUCTOR_LAYOUT_OPTIMIZATION", "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM", "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE", "TORCHINDUCTOR_NAN_ASSERTS",
    "TORCHINDUCTOR_SHAPE_PADDING", "TORCHINDUCTOR_SIZE_ASSERTS", "TORCHINDUCTOR_WORKER_START",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_COMPILE_BACKEND", "TORCH_COMPILE_CPROFILE", "TORCH_COMPILE_DEBUG",
    "TORCH_COMPILE_DISABLE", "TORCH_COMPILE_DYNAMIC_SOURCES", "TORCH_COMPILE_DYNAMIC_VALUES", "TORCH_COMPILE_JOB_ID",
    "TORCH_COMPILE_UNBACKED_SOURCES", "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO",
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES", "TORCH_LOGS", "TORCH_LOGS_FORMAT", "TORCH_LOGS_OUT", "TORCH_TRACE",
    "WORLD_SIZE",
})
_SECRET = re.compile(
    r"key|token|secret|pass|pwd|cred|auth|bearer|cookie|signature|webhook|(?<![a-z])(?:pw|pat|psk|sas|sig|dsn|otp)(?![a-z])",
    re.I)
# Names that only look like a secret, which many trainings have as a flag.
_NO_SECRET = re.compile(
    r"tokeni[sz]\w*|(?:max|min|num|n|new|total)[_-](?:\w+[_-])?tokens|tokens[_-]per|key[_-]?points?|"
    r"by-?pass|num[_-]pass(?:es)?|authors?\b", re.I)
_SEPARATOR = re.compile(r"=|(?<!:):(?![:/])")     # between a name and its value; not `::` or the colon of a URL
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+\S.*", re.I | re.S)     # of an Authorization header
_HOST = re.compile(r"[\w.-]+\.[a-z]{2,}(?:[:/?#]|$)", re.I)
# Forms that the services of this field give their tokens, and addresses that are secrets.
_TOKEN = re.compile(
    r"(?<!\w)(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abeprs]-|AKIA|ASIA|AIza|eyJ)[\w.-]{8,}|"
    r"(?<=hooks\.slack\.com/services/)\S+|(?<=discord\.com/api/webhooks/)\S+")
_USER_FLAGS = ("-u", "--user", "--proxy-user")
_USER_AND_PASSWORD = re.compile(r"^([^\s:/@]+):[^\s/@]+(?=@[\w.-]+)")     # before a host, in a URL without a scheme
_SPACE = re.compile(r"(\s+)")


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect torch.compile, each by its whole name, without a secret in their values."""
    return {name: _word(value) for name, value in sorted(environ.items()) if name in _VARIABLES}


def redacted(words: Sequence[str]) -> list[str]:
    """A command line without the values of names that look like secrets, and without passwords in URLs.

    What is hidden too much can be asked for; what is shown too much cannot be taken back. So all words after a secret
    flag are hidden up to the next flag, and the first of them even if it begins with a dash.
    """
    result: list[str] = []
    is_value = is_first = False     # whether this word is a value of a secret flag, and the first after it
    for word in words:
        if is_value and (is_first or not word.startswith("-")):
            result.append(HIDDEN)
            is_first = False
            continue
        shown = _word(word)
        if result and result[-1] in _USER_FLAGS and ":" in word:
            shown = f"{word.partition(':')[0]}:{HIDDEN}"
        result.append(_inner_words(shown))
        is_flag = word.startswith("-") and not _SEPARATOR.search(word) and _is_secret(word)
        is_value = is_first = is_flag or shown == f"{word}{HIDDEN}" or word.lower() in ("bearer", "basic")
    return result


def _inner_words(word: str) -> str:
    """A word that is itself a command line, as that of `sh -c`, without the values of its secret flags."""
    parts = _SPACE.split(word)
    if len(parts) > 1:
        parts[::2] = redacted(parts[::2])
    return "".join(parts)


def _word(word: str) -> str:
    """One word: what follows the name of a secret is hidden, and so are passwords in URLs and known forms of tokens."""
    begin = 0
    for separator in _SEPARATOR.finditer(word):
        if _is_secret(word[begin:separator.start()]):
            return word[:separator.end()] + HIDDEN
        begin = separator.end()
    word = _SCHEME.sub(rf"\1 {HIDDEN}", _without_user(_USER_AND_PASSWORD.sub(rf"\1:{HIDDEN}", word)))
    return _TOKEN.sub(HIDDEN, word)


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(_NO_SECRET.sub("", name)))


def _without_user(word: str) -> str:
    """A URL without user and password; an @ may also be part of its path, and a slash part of a token."""
    scheme, is_url, rest = word.partition("://")
    user, at, host = rest.rpartition("@")
    if is_url and at and (":" in user or "/" not in user or _HOST.match(host)):
        return f"{scheme}://{HIDDEN}@{host}"
    return word
