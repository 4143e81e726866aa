"""Declare the structs that Python fills in and kernels read: one list of fields gives both a ctypes class and a C++ header."""

from __future__ import annotations

import ctypes
import keyword
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Fields = Sequence[tuple[str, str]]

_NUMBERS = {
    "int": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "long long": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_texts: dict[str, str] = {}


class Header:
    """A C++ header of structs, which files of `cuda/` include by its name.

    Args:
        name: The header's name. There is no such file: the compiler is given the text that :func:`declared_headers` returns.
        lists: The names of each list, by the list's name. Each becomes a macro that applies another macro to every name.
        uses: Another header, whose structs may be fields of this one's. Files include it before this one.
        **structs: The fields of each struct in memory order, as pairs of a C++ type and names separated by spaces. A type is a pointer,
            `int`, `uint32`, `long long`, `float`, `double` or a struct declared earlier. A name may end in the length of an array,
            "[MACRO]". A name that is a Python keyword ends with an underscore in Python.
    """

    def __init__(self, name: str, lists: Mapping[str, Sequence[str]] | None = None, uses: Header | None = None, **structs: Fields) -> None:
        self._structs, self._uses = structs, uses
        self._types: dict[tuple, type[ctypes.Structure]] = {}
        lines = ["#pragma once"]
        lines += [f"#define {macro}(apply) {' '.join(f'apply({entry})' for entry in names)}" for macro, names in (lists or {}).items()]
        for struct, fields in structs.items():
            lines += [f"struct {struct} {{", *(f"    {kind} {field};" for kind, field in _one_by_one(fields)), "};"]
        _texts[name] = "\n".join([*lines, ""])

    def ctype(self, struct: str = "Parameters", **macros: int) -> type[ctypes.Structure]:
        """Return the ctypes class of a struct. Setting any attribute other than a field raises AttributeError.

        Args:
            struct: The struct's name.
            **macros: The values of the macros that are lengths of its arrays.
        """
        if struct not in self._structs and self._uses is not None:
            return self._uses.ctype(struct, **macros)
        key = (struct, *sorted(macros.items()))
        if key not in self._types:
            fields = [self._field(kind, field, macros) for kind, field in _one_by_one(self._structs[struct])]
            self._types.setdefault(key, type(struct, (ctypes.Structure,), {"_fields_": fields, "__slots__": ()}))  # atomic: one per key
        return self._types[key]

    def _field(self, kind: str, field: str, macros: dict[str, int]) -> tuple[str, Any]:
        ctype: Any = ctypes.c_uint64 if kind.endswith("*") else _NUMBERS.get(kind) or self.ctype(kind)
        name, _, length = field.removesuffix("]").partition("[")
        return name + "_" * keyword.iskeyword(name), ctype * macros[length] if length else ctype


def _one_by_one(fields: Fields) -> Iterator[tuple[str, str]]:
    return ((kind, name) for kind, names in fields for name in names.split())


def declared_headers() -> dict[str, str]:
    """Return the text of every header that has been declared so far.

    A header is declared when the module that makes its :class:`Header` is imported.

    Returns:
        The C++ text of each header, by the name that files of `cuda/` include it by.
    """
    return dict(_texts)


def fill(parameters: ctypes.Structure, values: Mapping[str, Tensor | float]) -> ctypes.Structure:
    """Set fields of a struct by name and return the struct.

    Args:
        parameters: The struct.
        values: The value of each field: a number, or a tensor whose address is stored.

    Raises:
        AttributeError: If a name is not a field.
    """
    for name, value in values.items():
        setattr(parameters, name, value.data_ptr() if hasattr(value, "data_ptr") else value)
    return parameters
