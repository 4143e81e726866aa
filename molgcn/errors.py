"""The one error class for a user's mistakes, and how messages show what the user gave."""

_SHOWN = 80


class UserError(Exception):
    """A mistake in the user's input: a file, a key, a value or a SMILES.

    The message is one paragraph that names the file, line or key, what was expected and what to do. The command line prints it without a
    traceback and exits with code 2; in a multirun it ends only the job that raised it.
    """


def require(condition: bool, key: str, value: object, expected: str) -> None:
    """Raise a UserError that names a key of the configuration and its value, unless the condition holds."""
    if not condition:
        raise UserError(f"{key}={value} is not valid: expected {expected}.")


def shown(text: str) -> str:
    """A SMILES or a cell as messages show it: what would steer a terminal is escaped, and at most 80 characters are left."""
    escaped = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text[: _SHOWN + 1])
    return escaped if len(escaped) <= _SHOWN else f"{escaped[: _SHOWN - 3]}..."
