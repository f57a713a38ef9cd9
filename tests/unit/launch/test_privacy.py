"""Of the environment and the command line no secret is recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.launch.environment import FOLDER, RUN_ID
from torchtriage.launch.privacy import allowed_environment, redacted

ALLOWED = [
    "TORCH_LOGS", "TORCH_TRACE", "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_CACHE_DIR", "OMP_NUM_THREADS", "RANK",
    "CUDA_VISIBLE_DEVICES",
]
prefixes = st.sampled_from(["", "TORCH", "TORCH_", "TORCHINDUCTOR_", "OMP_", "AOT_", "MKL_", "RANK_", "KMP_"])
secrets = st.sampled_from(
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "AUTH", "PASSWD", "PWD", "CREDENTIALS", "CREDS", "Key", "ApiKey"]
)
words = st.text("ABCXYZ_019", max_size=6)


@given(prefixes, words, secrets, words)
def test_a_variable_that_looks_like_a_secret_is_not_recorded(prefix: str, before: str, secret: str, after: str) -> None:
    assert allowed_environment({prefix + before + secret + after: "hunter2"}) == {}


@given(st.text())
def test_a_variable_that_is_not_on_the_list_is_not_recorded(name: str) -> None:
    listed = (
        "TORCH", "AOT", "ATEN", "OMP", "MKL", "KMP", "RANK", "WORLD", "LOCAL", "GROUP", "NODE", "CUDA", "PYTHON",
    )
    if not name.startswith(listed):
        assert allowed_environment({name: "x"}) == {}


def test_variables_that_affect_compiling_are_recorded_in_order() -> None:
    environ = dict.fromkeys(reversed(ALLOWED), "1")
    assert allowed_environment(environ) == environ
    assert list(allowed_environment(environ)) == sorted(ALLOWED)


@pytest.mark.parametrize("name", [
    "HOME", "PATH", "USER", "AWS_ACCESS_KEY_ID", "WANDB_API_KEY", "HF_TOKEN", "RANK_TABLE", "PYTHONPATH", "torch_logs",
    "MY_TORCH_LOGS",
    "DATABASE_URL", "SSH_AUTH_SOCK",
])
def test_other_variables_are_not_recorded(name: str) -> None:
    assert allowed_environment({name: "x"}) == {}


def test_our_own_variables_are_not_facts_of_the_program() -> None:
    assert allowed_environment({FOLDER: "x", RUN_ID: "y", "TORCHTRIAGE_MEASURE": "1"}) == {}


def test_a_command_line_is_recorded_without_its_secrets() -> None:
    words = ["train.py", "--lr", "3", "--api-key", "abc", "--hub_token=xyz", "--name", "run-key", "-v"]
    assert redacted(words) == [
        "train.py", "--lr", "3", "--api-key", "***", "--hub_token=***", "--name", "run-key", "-v",
    ]


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_REDIS_URL", "OMPI_MCA_x", "MKL_LICENSE", "TORCH_HOME", "TORCHX_JOB"])
def test_a_variable_is_recorded_by_its_whole_name_only(name: str) -> None:
    assert allowed_environment({name: "x"}) == {}


def test_the_value_of_a_recorded_variable_holds_no_secret() -> None:
    environ = {"TORCHINDUCTOR_CACHE_DIR": "s3://me:hunter2@host/cache", "TORCH_LOGS": "+dynamo,recompiles"}
    assert allowed_environment(environ) == {
        "TORCHINDUCTOR_CACHE_DIR": "s3://***@host/cache", "TORCH_LOGS": "+dynamo,recompiles",
    }


SECRET_NAMES = [
    "wandb.api_key", "hub-token", "PASSWORD", "db.passwd", "aws_secret_access_key", "X_KEY", "credentials", "auth",
    "logger/wandb.token", "apiKey", "Cookie",
]
# Forms of a command line in which a secret may stand: the words, with {} for it.
FORMS = [
    ["{name}={}"], ["+{name}={}"], ["--{name}={}"], ["--{name}", "{}"], ["--{name}", "-{}"], ["--{name}", "--{}"],
    ["--{name}", "a", "b", "{}"], ["env", "{name}={}", "python"], ["--set", "{name}:{}"],
    ["--config", '{{"lr": 1, "{name}": "{}"}}'], ["wandb={{project:x,{name}:{}}}"],
    ["-c", "import x; {name} = '{}'"], ["-c", "os.environ['{name}']='{}'"],
    ["-H", "Authorization: Bearer {}"], ["Authorization:", "Bearer", "{}"], ["-H", "bearer {}"], ["Bearer", "{}"],
    ["postgres://me:{}@host/db"], ["--db=redis://:{}@host"], ["https://{}@github.com/a/b"],
    ["https://host/x?{name}={}&y=1"], ["--data", "https://host/x?y=1&{name}={}"], ["hf_{}"], ["--x", "ghp_{}"],
    ["sh", "-c", "python train.py --{name} {}"], ["--{name}\t{}"], ["bash", "-c", "a && b --{name} '{} more' -v"],
    ["-u", "me:{}"], ["--user", "me:{}"], ["https://hooks.slack.com/services/T0/B0/{}"], ["--pw", "{}"], ["--pat={}"],
    ["https://host/x?sv=1&sig={}"],
]
planted = st.text("abcXYZ019_-/.+", min_size=1, max_size=20).map(lambda text: f"hunter2hunter2{text}")


@given(
    st.lists(st.sampled_from(["train.py", "--lr", "1e-3", "-v", "seed=3", "--"])), st.sampled_from(FORMS),
    st.sampled_from(SECRET_NAMES), planted, st.lists(st.sampled_from(["--lr", "1", "out.txt"])),
)
def test_a_planted_secret_never_survives(
    before: list[str], form: list[str], name: str, secret: str, after: list[str],
) -> None:
    if "://{}@" in form[0]:
        secret = secret.replace("/", "-")       # a slash would make it the host
    words = [word.format(secret, name=name) for word in form]
    assert "hunter2" not in " ".join(redacted([*before, *words, *after]))


@pytest.mark.parametrize("secret", ["hunter2/", "a/hunter2", "hunter2/x:y"])
def test_a_token_with_a_slash_before_a_host_is_hidden(secret: str) -> None:
    assert redacted([f"https://{secret}@github.com/a/b"]) == ["https://***@github.com/a/b"]


@pytest.mark.parametrize("words", [
    ["train.py", "--tokenizer", "gpt2", "--max-new-tokens", "100", "out"],
    ["train.py", "optim.lr=0.1", "--num-passes=3"],
    ["pytest", "tests/test_auth.py::test_login"], ["python", "-m", "pkg", "--data", "https://host/data.tar@v1"],
    ["train.py", "--author", "me", "key"], ["python", "-u", "train.py"], ["train.py", "--pattern", "a", "--path", "b"],
    ["sh", "-c", "cd a  &&\tpython train.py --lr 1"],
])
def test_a_command_line_without_secrets_is_unchanged(words: list[str]) -> None:
    assert redacted(words) == words


@pytest.mark.parametrize(("words", "shown"), [
    (["--token", "-x", "--lr", "1"], ["--token", "***", "--lr", "1"]),
    (["--tokens", "a", "b", "c", "--lr", "1"], ["--tokens", "***", "***", "***", "--lr", "1"]),
    (["env", "X_KEY=abc", "python"], ["env", "X_KEY=***", "python"]),
    (["-H", "Authorization: Bearer abc"], ["-H", "Authorization:***"]),
    (["git+https://me:pw@host/x@v1"], ["git+https://***@v1"]),
    (["--proxy", "me:abc@host:8080"], ["--proxy", "me:***@host:8080"]),
    (["sh", "-c", "python train.py --token abc --lr 1"], ["sh", "-c", "python train.py --token *** --lr 1"]),
    (["curl", "-u", "me:pw", "host"], ["curl", "-u", "me:***", "host"]),
])
def test_the_names_of_secrets_stay(words: list[str], shown: list[str]) -> None:
    assert redacted(words) == shown
