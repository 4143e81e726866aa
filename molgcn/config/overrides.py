"""Checks of the command line before Hydra sees it: they quote paths and suggest the nearest valid key."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from molgcn.config.nearest_key import nearest_key, nearest_option
from molgcn.errors import UserError
from molgcn.files.mapping_text import read_mapping, typed_mapping

_TEXT_KEYS = ("path", "split_file", "cache_dir", "ckpt_path", "ckpt", "input", "resume", "dir", "runs", "sweeps", "output", "molecule")
_COLUMN_KEYS = ("monitor", "objective", "weights", "split_column", "smiles", "target")
_MAPPING_KEYS = ("tasks", "transforms", "units", "labels", "task_weights")
_BEFORE_DOLLAR, _ESCAPED_DOLLAR = re.compile(r"(\\*)\$\{"), re.compile(r"((?:\\\\)*)\\\$\{")
_PLAIN = re.compile(r"[\w./:@%+*-]*", re.ASCII)
_NAMED_ONCE = ("ckpt", "input", "molecule")
_CONFIG_DIR = ("--config-dir", "-cd")
_TAKE_A_WORD = (*_CONFIG_DIR, "--cfg", "-c", "--package", "-p", "--experimental-rerun")
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")  # the values of --info
_OPEN_SECTIONS = ("trainer", "hydra", "sweep")


def quote_texts(arguments: Sequence[str]) -> list[str]:
    """Quote the values of keys that hold paths, SMILES, columns or mappings by column, where Hydra's grammar would interpret signs in them.

    Such signs are spaces, commas, parentheses and `=`. A value with `${` is not quoted unless it is the name of an existing file. The same
    holds for a value with commas under --multirun, where they separate several values. A quoted mapping is read by
    :func:`molgcn.files.mapping_text.read_mapping`.
    """
    multirun = any(argument in ("--multirun", "-m") for argument in arguments)
    return [_quote(argument, multirun) for argument in arguments]


def _quote(argument: str, multirun: bool) -> str:
    key, separator, value = argument.partition("=")
    name = key.rsplit(".", 1)[-1]
    if argument.startswith("-") or not separator or name not in (*_TEXT_KEYS, *_COLUMN_KEYS, *_MAPPING_KEYS):
        return argument
    if name in _MAPPING_KEYS:
        return f"{key}={quote(value)}" if read_mapping(value) is not None and not _is_parsed(argument) else argument
    if name in (*_COLUMN_KEYS, "split_file") and value.startswith("["):  # a list of columns or files
        return argument
    value = os.path.expanduser(value)  # no shell replaces ~ behind a =
    quoted = value[:1] in ("'", '"') and value[-1:] == value[:1]
    more_than_text = "${" in value or (multirun and "," in value)
    if quoted or _PLAIN.fullmatch(value) or (more_than_text and not os.path.exists(value)):
        return f"{key}={value}"
    return f"{key}={quote(value)}"


def _is_parsed(argument: str) -> bool:
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return False
    return True


def own_presets(arguments: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Return the command line with its flags after the overrides, and the folder of the user's own presets, if it is one and there is one.

    Each flag is joined with its value into one word. The folder is the value of `--config-dir`.
    """
    joined: list[str] = []
    for argument in arguments:
        if joined and (joined[-1] in _TAKE_A_WORD or (joined[-1] in ("--info", "-i") and argument in _INFO)):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    folders = [Path(argument.partition("=")[2].strip("'\"")) for argument in joined if argument.partition("=")[0] in _CONFIG_DIR]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--config-dir={folder} is not a folder. Expected one with presets such as experiment/best.yaml in it.")
    if len(folders) > 1:
        raise UserError(f"--config-dir is given {len(folders)} times, and only one can be used. Put the presets into one folder.")
    return sorted(joined, key=lambda argument: argument.startswith("-")), folders


def check_overrides(arguments: Sequence[str], conf: Path, config_name: str, presets: Sequence[Path] = ()) -> None:
    """Parse the overrides and compare their keys with the configuration they are for.

    Args:
        arguments: the command line. Of its flags only those are looked at that Hydra does not know.
        conf: the folder of the configuration.
        config_name: the primary file, without its ending.
        presets: further folders in which options of groups are looked for.

    Raises:
        UserError: for an override that cannot be parsed (with the way to quote it), for a flag that does not exist, and for a key or
            group option that does not exist (with the nearest one that does).
    """
    _, unknown = get_args_parser().parse_known_args(arguments)
    if unknown:
        raise UserError(
            f"{unknown[0]} is not understood. Keys are given as key=value, without dashes, as in the examples that `--help` shows."
        )
    typed = [argument for argument in arguments if not argument.startswith("-") and argument]
    overrides = [parse_override(argument) for argument in typed]
    for key in _NAMED_ONCE if config_name != "train" else ():
        given = [argument for argument, override in zip(typed, overrides, strict=True) if override.key_or_group == key]
        if len(given) > 1:
            several = f" Several go in one list: {key}=[a,b]." if (key, config_name) == ("ckpt", "predict") else ""
            raise UserError(
                f"{' and '.join(given)} name {key} {len(given)} times, and one of them would be left out. Give it once.{several}"
            )
    groups = _groups_of(config_name, [conf, *presets])
    chosen = [override for override in overrides if override.key_or_group in groups]
    for override in chosen:
        _check_options(override, [conf, *presets])
    choices = tuple(one for override in chosen for one in _first_choice(override))
    known = sorted({*_keys_with(choices, conf, config_name, presets), *groups})
    for argument, override in zip(typed, overrides, strict=True):
        key = override.key_or_group
        if key == "hydra.verbose" and not _is_verbose(override.value()):
            raise UserError(f"{argument} is not valid: expected true, false, or the name of a logger (or a list of them) to set to DEBUG.")
        if key in known and override.is_add() and not override.is_force_add():
            raise UserError(f"{key} is in the configuration already. Leave the + out: {argument.lstrip('+')}")
        if key in known or re.split("[./]", key)[0] == "hydra":
            continue
        if key.split(".")[0] in _OPEN_SECTIONS and (override.is_add() or override.is_force_add() or override.is_delete()):
            continue
        group = key.split(".")[0]
        files = [path for folder in [conf, *presets] for path in (folder / group).glob("*.yaml")] if group in groups else []
        written = re.compile(rf"\b{re.escape(key.rsplit('.', 1)[-1])}['\"]?:")  # composing each option takes seconds
        said = any(written.search(path.read_text("utf-8", "replace")) for path in files)
        options = _options_of(group, [conf, *presets]) if said else []
        having = [option for option in options if key in {*_keys_with((f"{group}={option}",), conf, config_name, presets)}]
        hint = f" It is one with {', '.join(f'{group}={option}' for option in having)}." if having else nearest_key(key, known)
        raise UserError(f"{key} is not a key of the configuration.{hint} `--help` shows all keys.")


def with_swept_groups(arguments: Sequence[str], conf: Path, config_name: str, presets: Sequence[Path] = ()) -> list[str]:
    """Return the command line of a multirun so that keys of swept options, as in `model=gat,gatv2 model.heads=3`, are found.

    Hydra composes the sweep's own configuration without the options that are swept, and refuses a key that only these have. The sign `++`
    lets it pass, and gives each job its value. Without it Hydra would also end all jobs for one whose option lacks a swept key.
    """
    groups = _groups_of(config_name, [conf, *presets])
    parsed = {argument: parse_override(argument) for argument in arguments if argument and not argument.startswith("-")}
    chosen = [override for override in parsed.values() if override.key_or_group in groups]
    if not any(override.is_sweep_override() for override in chosen):
        return list(arguments)
    fixed = tuple(one for override in chosen if not override.is_sweep_override() for one in _first_choice(override))
    known = {*_keys_with(fixed, conf, config_name, presets), *groups}

    def is_of_a_swept_option(override: Override) -> bool:
        key, section = override.key_or_group, override.key_or_group.split(".")[0]
        signed = override.is_add() or override.is_force_add() or override.is_delete()
        if signed or section not in groups or key == section or key in known:
            return False
        options = [f"{section}={value}" for one in chosen if one.key_or_group == section for value in _values(one)]
        others = tuple(one for one in fixed if not one.startswith(f"{section}="))
        lacking = any(key not in _keys_with((*others, option), conf, config_name, presets) for option in options)
        return lacking or not override.is_sweep_override()

    return [f"++{one}" if one in parsed and is_of_a_swept_option(parsed[one]) else one for one in arguments]


def _is_verbose(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return isinstance(value, bool) or all(isinstance(name, (str, QuotedString)) for name in names)


def quote(text: str) -> str:
    """Return a text in quotes for Hydra's grammar, so that nothing in it is interpolated."""
    literal = _BEFORE_DOLLAR.sub(lambda found: found[1] * 2 + "\\${", text)
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), literal)  # only those before a quote escape
    return f"'{escaped}'"


def as_typed(key: str, path: Path) -> str:
    """Return `key=<path>` as it is typed in a shell, for messages. :func:`quote_texts` quotes it for Hydra."""
    return shlex.quote(f"{key}={path}")


def values_of(key: str, arguments: Sequence[str]) -> list[str]:
    """Return the values that the command line gives `key`, without quotes and without null."""
    overrides = [parse_override(argument) for argument in arguments if argument.startswith(f"{key}=")]
    values = [str(override.value()) for override in overrides if override.value() is not None]
    return [_ESCAPED_DOLLAR.sub(lambda found: found[1][: len(found[1]) // 2] + "${", value) for value in values]


def parse_override(argument: str) -> Override:
    """Parse an override by Hydra's grammar; the error about one that cannot be parsed shows the way to quote it."""
    try:
        return OverridesParser.create().parse_override(argument)
    except HydraException:
        key, separator, value = argument.partition("=")
        if not separator:
            raise UserError(f"'{argument}' is not understood. Expected key=value, as in the examples that `--help` shows.") from None
        signs = "holds spaces, commas, parentheses, brackets, quotes, '=' or letters beyond ASCII."
        if value.startswith("["):
            items = ", ".join(_in_quotes(item.strip()) for item in value.strip("[]").split(","))
            raise UserError(
                f"The value of {key} is not understood: {value}. Quote each text of the list for Hydra, and all for the shell, as in "
                f"{shlex.quote(f'{key}=[{items}]')}, when it {signs}"
            ) from None
        if key.rsplit(".", 1)[-1] in _MAPPING_KEYS:
            pairs = [item.partition(":") for item in value.strip("{}").split(",")]
            example = typed_mapping(key, {name.strip("\"' "): one.strip("\"' ") for name, _, one in pairs})
            raise UserError(
                f"The value of {key} is not understood: {value}. Expected a mapping by column, with names in double quotes where they hold "
                f"spaces, commas, brackets, quotes or colons, as in {example}."
            ) from None
        quoted = shlex.quote(f"{key}={quote(value)}")
        raise UserError(
            f"The value of {key} is not understood: {value}. Quote it for both the shell and Hydra, as in {quoted}, when it {signs}"
        ) from None


def _in_quotes(text: str) -> str:
    return quote(text) if re.search(r'["\\$]', text) else f'"{text}"'


def _groups_of(config_name: str, folders: Sequence[Path]) -> set[str]:
    """Return the groups in the folders that the primary file, in the first, chooses from in its defaults list, such as "model"."""
    defaults = OmegaConf.load(folders[0] / f"{config_name}.yaml")["defaults"]  # type: ignore[index]
    named = {str(key).rpartition(" ")[2] for choice in defaults if choice != "_self_" for key in choice}
    return {name for name in named if any((folder / name).is_dir() for folder in folders)}


def _values(override: Override) -> list[Any]:
    """Return the option of a group that an override chooses, or all that a sweep does."""
    values = list(override.sweep_string_iterator()) if override.is_sweep_override() else [override.value()]
    return [value for value in values if value is not None]


def _first_choice(override: Override) -> list[str]:
    return [f"{override.key_or_group}={value}" for value in _values(override)[:1]]


def _check_options(override: Override, folders: Sequence[Path]) -> None:
    group = override.key_or_group
    options = _options_of(group, folders)
    for value in _values(override):
        if str(value) not in [*options, "null"]:
            raise UserError(f"{group}={value} does not exist.{nearest_option(str(value), options)} There are: {', '.join(options)}.")


def _options_of(group: str, folders: Sequence[Path]) -> list[str]:
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def compose_config(overrides: Sequence[str], conf: Path, config_name: str, presets: Sequence[Path] = ()) -> DictConfig:
    """Compose the configuration that a command line with these overrides gives, from the file `config_name` and folders of presets."""
    overrides = [*overrides, *search_path(presets)]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf), version_base="1.3"):
        try:
            return compose(config_name, overrides=overrides)
        except HydraException as error:
            if "hydra/launcher" in str(error):
                raise UserError("launcher= needs its packages: pip install molgcn[launchers]. Without it jobs run one by one.") from error
            raise misfit(error) from error


def search_path(folders: Sequence[Path]) -> list[str]:
    """Return the override with which Hydra looks for files in these folders too; none where there are no folders."""
    paths = [quote(f"file://{folder.resolve()}") for folder in folders]
    return [f"hydra.searchpath=[{','.join(paths)}]"] if paths else []


def misfit(error: HydraException) -> UserError:
    """Return Hydra's error about a configuration that it cannot compose as a UserError of one paragraph."""
    return UserError(f"The configuration does not fit together: {' '.join(str(error).split())}")


def _keys_with(choices: tuple[str, ...], conf: Path, config_name: str, presets: Sequence[Path]) -> Iterable[str]:
    """Return the keys of the configuration with some options of groups. Presets may change while a process runs, others are remembered."""
    return _keys(compose_config(choices, conf, config_name, presets)) if presets else _own_keys_with(choices, conf, config_name)


@cache
def _own_keys_with(choices: tuple[str, ...], conf: Path, config_name: str) -> frozenset[str]:
    return frozenset(_keys(compose_config(choices, conf, config_name)))


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    container: Any = OmegaConf.to_container(config, resolve=False)
    stack = [(prefix, container)]
    while stack:
        path, node = stack.pop()
        for key, value in node.items():
            name = f"{path}.{key}" if path else str(key)
            yield name
            if isinstance(value, dict):
                stack.append((name, value))
