"""Replace what looks like a secret, in what a run tells about itself.

Rule 1: A text is a secret if its name says so (`api_key`, `--password`), or if it has the form of a well-known kind of
token. Numbers and truth values are not: `max_tokens` and `pad_token_id` are ordinary settings.
Rule 2: What surrounds a secret stays: its name, the flag of a command, the rest of a line.

`visible` shows characters that are not seen: controls, and those that change the direction of a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

REDACTED: Final = "[redacted]"
MAX_DEPTH: Final = 32

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRETS: Final = frozenset((
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets", "apikey", "apitoken", "authtoken",
    "accesstoken", "accesskey", "secretkey", "privatekey", "credential", "credentials", "passwords", "cookie",
    "cookies",
))  # fmt: skip
_KEYS: Final = frozenset((
    "api", "access", "secret", "private", "auth", "encryption", "signing", "master", "account", "storage",
    "license", "wandb", "openai", "hf", "service",
))  # fmt: skip
_PLAIN_TOKENS: Final = frozenset((
    "pad", "eos", "bos", "unk", "mask", "cls", "sep", "image", "audio", "video", "start", "end", "stop", "begin",
    "prefix", "suffix", "special", "per", "each", "last", "first", "next", "class", "dist", "distillation",
    "register", "sos", "newline", "prompt", "trigger", "additional",
))  # fmt: skip
"""What comes before `token` in the names of a tokenizer's tokens, which are texts such as "<pad>"."""
_PATH: Final = re.compile(r"^(~|\.{1,2})?/\S*$|^[A-Za-z]:\\")

_TOKENS: Final = re.compile(
    r"""(?x)
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<![\w-]) (?:
          gh[pousr]_[A-Za-z0-9]{30,} | github_pat_[A-Za-z0-9_]{22,}       # GitHub
        | glpat-[\w-]{20,}                                                # GitLab
        | sk-(?=[\w-]*\d)[\w-]{20,} | [sr]k_(?:live|test)_[A-Za-z0-9]{16,}  # OpenAI, Anthropic; Stripe
        | hf_[A-Za-z0-9]{30,}                                             # Hugging Face
        | (?:AKIA|ASIA)[0-9A-Z]{16} (?!\w)                                # Amazon
        | AIza[\w-]{35} | ya29\.[\w-]{20,}                                # Google
        | xox[abeoprs]-[\w-]{10,}                                         # Slack
        | npm_[A-Za-z0-9]{36} | pypi-[\w-]{50,} | dckr_pat_[\w-]{20,}     # npm, PyPI, Docker
        | SG\.[\w-]{16,}\.[\w-]{16,}                                      # SendGrid
        | wandb_v1_[\w-]{20,} | nvapi-[\w-]{20,} | r8_[A-Za-z0-9]{30,}    # W&B, NVIDIA, Replicate
        | https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/[\w/-]+
        | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+                              # JSON Web Tokens
    )""",
    re.DOTALL,
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)(\s+)(?=[^\s'\"]*\d)[\w.~+/-]{16,}=*")
_IN_URL: Final = re.compile(r"\b([a-z][a-z0-9+.-]{0,20}://[^\s/:@'\"]*):[^\s/@'\"]+@", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"([?&;]\s*)([A-Za-z][\w.-]*)=([^&;\s\"']+)")
_SIGNATURES: Final = ("sig", "signature")
_ASSIGNED: Final = re.compile(r"""([A-Za-z_][\w.-]*)(["']?\s*[:=]\s*)(["'])([^"'\n]+)(\3)""")
_EXPORTED: Final = re.compile(r"(?m)^([+\- ]?\s*(?:export\s+)?)([A-Z_][A-Z0-9_]*)(=)([^\s\"'(){}\[\],]+)[ \t]*$")


def is_secret(name: str) -> bool:
    """Return whether the name of a text says that it is a secret.

    >>> is_secret("wandb.api_key"), is_secret("tokenizer"), is_secret("pad_token"), is_secret("hub_token")
    (True, False, False, True)
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return before in _KEYS
    if last == "url":
        return before in ("alert", "webhook")
    if last == "token":
        return before not in _PLAIN_TOKENS
    return last in _SECRETS


def redact_text(text: str) -> str:
    """Return a text without tokens of well-known kinds, and without the passwords in URLs and connection strings.

    >>> redact_text("postgres://ada:lovelace@db/runs?sslkey=a&password=b")
    'postgres://ada:[redacted]@db/runs?sslkey=a&password=[redacted]'
    """
    text = _TOKENS.sub(REDACTED, text)
    text = _BEARER.sub(rf"\1\2{REDACTED}", text)
    text = _PARAMETER.sub(_without_value, text)
    return _IN_URL.sub(rf"\1:{REDACTED}@", text) if "://" in text else text


def _without_value(parameter: re.Match[str]) -> str:
    """Return a parameter of a URL or a connection string as it is, or without the value of a secret."""
    before, name, _ = parameter.groups()
    signs = name.lower().rpartition("-")[2] in _SIGNATURES
    return f"{before}{name}={REDACTED}" if signs or is_secret(name) else parameter[0]


def redact(value: Any, name: str = "", *, depth: int = MAX_DEPTH) -> Any:
    """Return a config, or a part of it, with its secrets replaced; what has none is returned as it is.

    >>> redact({"lr": 0.1, "hub": {"token": "s3cr3t-s3cr3t"}})
    {'lr': 0.1, 'hub': {'token': '[redacted]'}}
    """
    if type(value) is str:
        return REDACTED if _tells(name, value) else redact_text(value)
    if depth and type(value) is dict:
        inherited = name if _holds_secrets(name) else ""
        return {key: redact(item, inherited or str(key), depth=depth - 1) for key, item in value.items()}
    if depth and type(value) in (list, tuple):
        return type(value)(redact(item, name, depth=depth - 1) for item in value)
    return value


def redact_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with its secrets replaced.

    >>> redact_command(["train.py", "--api-key", "abc", "db.password=x", "--lr", "0.1"])
    ['train.py', '--api-key', '[redacted]', 'db.password=[redacted]', '--lr', '0.1']
    """
    shown, name = [], ""
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if name and not argument.startswith("-"):
            shown.append(redact(argument, name))
        elif equals:
            shown.append(f"{redact_text(flag)}={redact(value, flag)}")
        else:
            shown.append(redact_text(argument))
        name = argument if argument.startswith("-") and not equals else ""
    return shown


def redact_code(text: str) -> str:
    """Return program text, or a diff of it, with tokens and the texts assigned to names of secrets replaced.

    >>> redact_code('+API_TOKEN = "abcdefgh1"; size = "large"')
    '+API_TOKEN = "[redacted]"; size = "large"'
    """
    text = _ASSIGNED.sub(lambda found: f"{found[1]}{found[2]}{found[3]}{redact(found[4], found[1])}{found[3]}", text)
    text = _EXPORTED.sub(lambda found: f"{found[1]}{found[2]}{found[3]}{redact(found[4], found[2])}", text)
    return redact_text(text)


def redact_environment(variables: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the environment's variables of some names, with the secrets among them replaced."""
    return {name: redact(variables[name], name) for name in names if name in variables}


def _holds_secrets(name: str) -> bool:
    """Return whether all that is under a name is a secret, as in `secrets: {mail: …}`."""
    words = _WORDS.findall(name)
    return bool(words) and words[-1].lower() in ("secrets", "credentials", "passwords")


def _tells(name: str, value: str) -> bool:
    """Return whether a text is a secret because of its name, not a path to one, nor a tokenizer's token."""
    if not value or not is_secret(name) or _PATH.match(value):
        return False
    return not (name.lower().endswith("token") and (value[0] in "<[" or " " in value))


# Characters that are not seen, made visible: controls, and those that change the direction of a text.
#
# A name can hold any characters. In a terminal, controls move the cursor and change what stands there; on a page and in
# a terminal alike, U+202E makes a run called "evil" read as "live".

# All controls but tab and line breaks; marks, embeddings, overrides and isolates of direction.
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)


def visible(text: str) -> str:
    r"""Return a text with such characters written as Python does.

    >>> visible("\x1b[2J and \u202eevil")
    '\\x1b[2J and \\u202eevil'
    """
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
