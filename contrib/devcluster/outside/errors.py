"""The two ways in which a command is refused; anything else that escapes is a bug."""

from __future__ import annotations


class DevclusterError(Exception):
    """Told to the user as one message, without a traceback; `exit_code` is the command's."""

    exit_code = 1


class MisuseError(DevclusterError):
    """The request itself is wrong, or contradicts what runs already."""

    exit_code = 2


class CannotRunError(DevclusterError):
    """This machine, or what it can download, does not allow it; the message ends with the remedy."""

    exit_code = 3
