"""Mappings by column as text, as a command line has them: {"Solubility (uM)": uM, IC50: nM}."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

_WORD = re.compile(r"(?!(null|true|false|nan|inf)$)[a-z_]\w*", re.ASCII | re.IGNORECASE)


def read_mapping(text: str) -> dict[str, Any] | None:
    """Return the mapping that a text such as {"Solubility (uM)": uM} holds, in YAML or JSON; None for any other text.

    All keys and values are texts or mappings; null is None. Hydra's own grammar has no quotes for keys.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = yaml.load(text, Loader=_Texts)
        return found if isinstance(found, dict) else None
    except (yaml.YAMLError, RecursionError):
        return None


class _Texts(yaml.BaseLoader):
    """Reads every scalar as text, and null without quotes as None."""

    def construct_scalar(self, node: yaml.ScalarNode) -> str | None:  # type: ignore[override]
        return None if node.value == "null" and node.style is None else str(node.value)


def typed_mapping(key: str, mapping: Mapping[str, Any]) -> str:
    """Return `key={...}` as it is typed in a shell, for messages."""
    text = _flow(mapping, plain=True)
    if "\\" in text or "${" in text:  # Hydra knows no escapes and interpolates, but leaves what has quoted keys to read_mapping
        text = _flow(mapping, plain=False)
    return shlex.quote(f"{key}={text}")


def _flow(value: Any, plain: bool) -> str:
    """Return a mapping or text as YAML, where words have no quotes if `plain`."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(name, plain)}: {_flow(one, plain)}' for name, one in value.items())}}}"
    if plain and isinstance(value, str) and _WORD.fullmatch(value):
        return value
    signs = json.dumps(value, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in signs)
