"""What a planted bug shows: the error of a scenario, and not one of the plant itself, which would find nothing."""

MISTAKES = (TypeError, AttributeError, NameError, NotImplementedError)
"""What a plant raises that does not fit the code any more."""


def shown(error: BaseException) -> BaseException:
    """The error in the groups of nurseries.

    Raises:
        AssertionError: the plant is broken; from that error.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MISTAKES):
        raise AssertionError(f"the plant does not fit the code any more: {error!r}") from error  # noqa: TRY004
    return error
