"""What looks like a secret is replaced, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.redact import REDACTED, is_secret, redact, redact_code, redact_command, redact_text

LONG = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"

TOKENS = [
    "https://" + "hooks.slack.com/services/T0AB/B0CD/x1y2z3",
    f"ghp_{LONG[:36]}",
    f"github_pat_{LONG}",
    f"glpat-{LONG[:20]}",
    f"sk-proj-{LONG}",
    f"sk-ant-api03-{LONG}",
    f"sk_live_{LONG[:24]}",
    f"hf_{LONG[:34]}",
    "AKIAIOSFODNN7EXAMPLE",
    f"AIza{LONG[:35]}",
    f"xoxb-{LONG[:20]}",
    f"npm_{LONG[:36]}",
    f"eyJ{LONG[:20]}.eyJ{LONG[:20]}.{LONG[:20]}",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nAAAA\n-----END RSA PRIVATE KEY-----",
]

NO_TOKENS = [
    "sk-learn",
    "task-sk-based-regularisation-of-the-network",
    "risk-adjusted-return-of-the-portfolio-2024",
    "d670460b4b4aece5915caf5c68d12f560a9fe3e4",
    "hf_transfer",
    "google/gemma-2-9b-it",
    "runs/mnist-2026-11-20-101010",
    "https://example.org:8080/path",
    "s3://bucket/key@version",
    "the bearer of good news",
    "BASIC training in basic mathematics",
    "AKIA",
    "adam(lr=0.1, betas=(0.9, 0.999))",
    "<|endoftext|>",
    "ghp_short",
]

SECRET_NAMES = [
    "password",
    "passwd",
    "db_password",
    "DB_PASSWORD",
    "dbPassword",
    "api_key",
    "apiKey",
    "API_KEY",
    "OPENAI_API_KEY",
    "wandb.api_key",
    "--api-key",
    "secret",
    "client_secret",
    "aws_secret_access_key",
    "access_key",
    "private_key",
    "token",
    "hub_token",
    "HF_TOKEN",
    "access_token",
    "accessToken",
    "auth_token",
    "authToken",
    "github.token",
    "credentials",
    "secrets",
    "passphrase",
]

OTHER_NAMES = [
    "tokenizer",
    "tokens",
    "max_tokens",
    "n_tokens",
    "max_new_tokens",
    "pad_token",
    "eos_token",
    "bos_token",
    "unk_token",
    "mask_token",
    "cls_token",
    "sep_token",
    "image_token",
    "token_dim",
    "tokens_per_second",
    "num_key_value_heads",
    "key",
    "keys",
    "key_size",
    "primary_key",
    "sort_key",
    "key_padding_mask",
    "secretary",
    "passenger",
    "bypass",
    "compass",
    "password_file",
    "api_key_path",
    "token_type",
    "monkey",
    "author",
    "api",
    "lr",
    "seed",
    "hidden_size",
    "monkeypatch",
    "foreign_key",
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_well_known_token_is_replaced_wherever_it_stands(token: str) -> None:
    assert redact_text(f"before {token} after") == f"before {REDACTED} after"
    assert redact({"note": [f"x {token}"]}) == {"note": [f"x {REDACTED}"]}
    assert redact_command(["train.py", token]) == ["train.py", REDACTED]
    assert token not in redact_code(f"+x = '{token}'")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://x.blob.example/c?sv=2020&sig=abc%2Bdef", "https://x.blob.example/c?sv=2020&sig=[redacted]"),
        (
            "https://s3.example/o?X-Amz-Date=1&X-Amz-Signature=ab12",
            "https://s3.example/o?X-Amz-Date=1&X-Amz-Signature=[redacted]",
        ),
        ("Server=db;User Id=sa;Password=hunter2;Max=5", "Server=db;User Id=sa;Password=[redacted];Max=5"),
        ("https://api.example/v1?token=abc&page=2", "https://api.example/v1?token=[redacted]&page=2"),
        ("x = 1; sizes=2", "x = 1; sizes=2"),
    ],
)
def test_secrets_among_parameters_are_replaced(text: str, shown: str) -> None:
    assert redact_text(text) == redact({"url": text})["url"] == shown


@pytest.mark.parametrize("text", NO_TOKENS)
def test_other_texts_stay(text: str) -> None:
    assert redact_text(text) == text
    assert redact({"name": text}) == {"name": text}
    assert redact_command(["train.py", text]) == ["train.py", text]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_text_whose_name_says_so_is_a_secret(name: str) -> None:
    assert is_secret(name)
    assert redact({name: "hunter2x9"}) == {name: REDACTED}
    assert redact_command([f"--{name}", "hunter2x9"]) == [f"--{name}", REDACTED]
    assert redact_command([f"{name}=hunter2x9"]) == [f"{name}={REDACTED}"]


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_text_of_another_name_is_not(name: str) -> None:
    assert not is_secret(name)
    assert redact({name: "value"}) == {name: "value"}
    assert redact_command([f"--{name}", "value", f"{name}=value"]) == [f"--{name}", "value", f"{name}=value"]


def test_numbers_paths_and_a_tokenizers_texts_are_no_secrets() -> None:
    config = {
        "token": 17, "password": None, "secret": True, "api_key": "", "private_key": "/etc/keys/id",
        "access_token": "<pad>", "token_list": ["a", "b"],
    }  # fmt: skip
    assert redact(config) == config


def test_what_stands_under_a_secret_is_one() -> None:
    config = {"secrets": {"mail": "abc", "n": 3, "deep": {"x": "y"}}, "password": ["a", "b"]}
    assert redact(config) == {
        "secrets": {"mail": REDACTED, "n": 3, "deep": {"x": REDACTED}},
        "password": [REDACTED] * 2,
    }


def test_urls_and_headers_keep_all_but_the_secret() -> None:
    assert redact_text("nats://me:pa55@hub:4222/x") == f"nats://me:{REDACTED}@hub:4222/x"
    assert redact_text(f"Authorization: Bearer {LONG}") == f"Authorization: Bearer {REDACTED}"


def test_a_flag_after_a_secrets_flag_is_not_its_value() -> None:
    assert redact_command(["--password", "--lr", "0.1"]) == ["--password", "--lr", "0.1"]


def test_a_diff_keeps_its_code() -> None:
    diff = (
        "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-api_key = 'old-key-1'\n+api_key = 'new-key-2'\n"
        '+token = tokenizer.next()\n+config = {"db_password": "hunter2", "depth": "3"}\n+export WANDB_API_KEY=abc123\n'
    )
    assert redact_code(diff) == (
        f"--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-api_key = '{REDACTED}'\n+api_key = '{REDACTED}'\n"
        f'+token = tokenizer.next()\n+config = {{"db_password": "{REDACTED}", "depth": "3"}}\n'
        f"+export WANDB_API_KEY={REDACTED}\n"
    )


@given(st.text(max_size=200))
def test_any_text_is_read_and_a_second_time_changes_nothing(text: str) -> None:
    for function in (redact_text, redact_code):
        assert function(function(text)) == function(text)
