"""The one error class for a user's mistakes, and how messages show what the user gave."""

import difflib
from collections.abc import Sequence

_SHOWN = 80
_LISTED = 30


class UserError(Exception):
    """A mistake in the user's input: a file, a key, a value or a SMILES.

    The message is one paragraph that names the file, line or key, what was expected and what to do. The command line prints it without a
    traceback and exits with code 2; in a multirun it ends only the job that raised it.
    """


def require(condition: bool, key: str, value: object, expected: str) -> None:
    """Raise a UserError that names a key of the configuration and its value, unless the condition holds.

    Args:
        condition: what must hold.
        key: the key, as the command line spells it.
        value: the key's value.
        expected: what was expected, in words.

    Raises:
        UserError: if the condition does not hold.
    """
    if not condition:
        raise UserError(f"{key}={value} is not valid: expected {expected}.")


def shown(text: str) -> str:
    """Return a SMILES or a cell as messages show it: at most 80 characters, with control characters escaped."""
    escaped = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text[: _SHOWN + 1])
    return escaped if len(escaped) <= _SHOWN else f"{escaped[: _SHOWN - 3]}..."


def counted(number: int, noun: str) -> str:
    """Return a number of things as text: "1 molecule", "1,200 molecules"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_of(number: int, total: int, what: str = "row", read: str = "") -> str:
    """Return a sentence that counts such rows, or other things, where a message shows the first of them; `read` qualifies the total."""
    if number == 1:
        return f"It is the only such {what} of {total:,}{read}."
    return f"It is the first of {number:,} such {what}s of {total:,}{read}."


def row_of(source: str, number: int, kind: str = "smiles") -> str:
    """Return how a message names a row of a table or list, or a record of an SDF (`kind="sdf"`).

    Args:
        source: the file or list.
        number: the row's number, counted from 0.
        kind: the format of the molecules.
    """
    if kind == "sdf":
        return f"Record {number} of {source} (counted from 0)"
    return f"Row {number} of {source} (counted from 0, without a header)"


def nearest(word: str, choices: Sequence[str]) -> str:
    """Return a sentence that names the nearest choice, or one that holds the word, whatever its case, and lists all choices."""
    spelled = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), spelled, n=1) or [
        choice for choice in spelled if len(word) > 2 and word.lower() in choice
    ]
    suggestion = f" Did you mean '{shown(spelled[close[0]])}'?" if close else ""
    return f"{suggestion} There are: {listed(choices)}."


def listed(names: Sequence[str]) -> str:
    """Return names as a message lists them: the first thirty, and how many more there are."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(map(shown, names[:_LISTED])) + more
