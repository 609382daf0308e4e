"""`env`: a value that is read from the environment of the process when it is needed, so that no program holds it."""

from __future__ import annotations

import os

import attrs

from .errors import UsageError


@attrs.frozen
class EnvironmentValue:
    """A variable of the environment, in a text.

    Attributes:
        name: The variable.
        form: The text, with {} where the value stands.
    """

    name: str
    form: str = "{}"

    def read(self) -> str:
        """Return the text as the environment is now.

        Raises:
            UsageError: the variable is not set, or empty.
        """
        value = os.environ.get(self.name)
        if not value:
            raise UsageError(f"env({self.name!r}): the environment has no such variable, or an empty one; set it")
        return self.form.replace("{}", value)


def env(name: str, form: str = "{}") -> EnvironmentValue:
    """Name a variable of the environment, for options that may hold a secret: `env("GITHUB_TOKEN", "Bearer {}")`.

    The variable is read when the value is used. A runtime masks the value in all that people see.

    Args:
        name: The variable.
        form: The text around its value, with one {} in it.

    Raises:
        UsageError: the name is not that of a variable, or the form has not one {}.
    """
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise UsageError(f"env({name!r:.200}): give the name of a variable, such as 'GITHUB_TOKEN'")
    if not isinstance(form, str) or form.count("{}") != 1:
        raise UsageError(f"env({name!r:.200}, {form!r:.200}): give a text with one {{}}, such as 'Bearer {{}}'")
    return EnvironmentValue(name, form)


def text_of_variable(value: str | EnvironmentValue) -> str:
    """Return a text that was given itself, or by the name of a variable.

    Raises:
        UsageError: the variable is not set.
    """
    return value.read() if isinstance(value, EnvironmentValue) else value
