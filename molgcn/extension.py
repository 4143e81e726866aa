"""The check that the compiled extensions were built from the C++ sources that this Python code was written for."""

from types import ModuleType

from molgcn.errors import UserError

FORMAT = 2
"""What Python hands to C++ has this number, which `CMakeLists.txt` compiles in: raise it when programs, layouts or signatures change."""


def check_format(module: ModuleType) -> None:
    """Raise a UserError if an extension was built for another :data:`FORMAT`; it might compute other numbers without a word."""
    built = getattr(module, "FORMAT", None)
    if built != FORMAT:
        raise UserError(
            f"The C++ extension {module.__file__} was built from the sources of another version of molgcn (format {built}, expected "
            f"{FORMAT}). Build it again with `pip install -e .` in the checkout, or reinstall molgcn."
        )
