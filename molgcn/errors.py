"""The one error class for a user's mistakes."""


class UserError(Exception):
    """A mistake in the user's input: a file, a key, a value or a SMILES.

    The message is one paragraph that names the file, line or key, what was expected and what to do. The command line prints it without a
    traceback and exits with code 2; in a multirun it ends only the job that raised it.
    """
