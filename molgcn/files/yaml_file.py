"""The small YAML files of a run, read as plain values even where someone else has changed them."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from molgcn.errors import UserError

_DEEPEST = 20
_LARGEST = 2**18  # bytes; the files of a run have some thousand, and reading takes seconds per megabyte


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # which of them it is depends on the machine
    def ignore_aliases(self, data: Any) -> bool:
        """Write each value where it stands, since :func:`read_yaml` refuses aliases."""
        return True


# OmegaConf reads 1e3 as a number too, so that such a text needs quotes
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile("^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"), list("-+0123456789"))


def read_yaml(path: Path, kind: type[dict[str, Any]] | type[list[Any]]) -> Any:
    """Read plain values without interpolating anything in them.

    Args:
        path: the file.
        kind: the type that it holds, dict or list.

    Raises:
        UserError: when the file cannot be read, holds another type, or has aliases, by which a few lines can stand for gigabytes.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes")
        text = content.decode()
        _check_events(text)
        values = OmegaConf.to_container(OmegaConf.load(io.StringIO(text)), resolve=False)
        if not isinstance(values, kind):
            raise ValueError("it holds something else than the run wrote")
    except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path} is damaged or cannot be read: {reason}. Restore what the run wrote, or start a new run.") from error
    return values


def yaml_text(values: Any) -> str:
    """Return plain values as YAML, as OmegaConf writes them, in a tenth of the time."""
    return yaml.dump(values, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)


def _check_events(text: str) -> None:
    depth = 0
    for event in yaml.parse(text):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError("it has anchors or aliases")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
