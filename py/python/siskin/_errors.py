"""The exceptions, by the kinds of errors of the library."""


class Error(Exception):
    """What went wrong, where, and what to do about it. `code` is the stable number of its kind."""

    code: int = 0

    def __init__(self, location: str, message: str) -> None:
        super().__init__(f"{location}: {message}" if location else message)
        self.location = location
        self.message = message

    def __reduce__(self) -> tuple[type["Error"], tuple[str, str]]:
        return type(self), (self.location, self.message)


class FileError(Error, OSError):
    """A file or folder could not be read or written, or a model could not be downloaded."""

    code = 100


class CorruptError(Error, ValueError):
    """The bytes are not in the format that they claim to be in."""

    code = 101


class UnsupportedError(Error, NotImplementedError):
    """The format is right, but this version cannot run it; or the model cannot do what was asked for."""

    code = 102


class VersionError(Error):
    """The major version of the file is unknown."""

    code = 103


class MissingError(Error, LookupError):
    """A file does not exist, or lacks what the model requires."""

    code = 104


class ShapeError(Error, ValueError):
    """A tensor has a shape or type that the architecture does not allow."""

    code = 105


class IntegrityError(Error):
    """A hash does not match: the file was changed or damaged."""

    code = 106


class ArgumentError(Error, ValueError):
    """An argument is out of range or contradicts another."""

    code = 200


class TooLongError(Error, ValueError):
    """The text or the tokens do not fit in the context."""

    code = 201


class TemplateError(Error, ValueError):
    """The chat template failed or rejected the messages."""

    code = 202


class StateError(Error, RuntimeError):
    """The object is in a state that does not allow the call."""

    code = 300


class CanceledError(Error):
    """Another thread canceled the call."""

    code = 301


class NumericError(Error, ArithmeticError):
    """The model produced NaN or infinity."""

    code = 302


class OutOfMemoryError(Error, MemoryError):
    """The request exceeds a memory limit."""

    code = 400


class OverloadedError(Error):
    """Too many requests are waiting; the request can be retried later."""

    code = 402


_BY_CODE: dict[int, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def of_code(code: int, location: str, message: str) -> Error:
    """Returns the exception of a kind."""
    return _BY_CODE.get(code, Error)(location, message)
