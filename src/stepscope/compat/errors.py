"""wandb's exceptions: never raised here, there to be caught."""


class Error(Exception):
    """Any error of wandb."""


class CommError(Error):
    """The server cannot be spoken to."""


class AuthenticationError(CommError):
    """The server does not know the user."""


class UsageError(Error):
    """wandb is called wrongly."""


class UnsupportedError(UsageError):
    """The server is too old for what is asked."""


class WandbCoreNotAvailableError(Error):
    """The service is not installed."""


class WandbServiceNotOwnedError(Error):
    """The service belongs to another process."""


class WandbServiceConnectionError(Error):
    """The service cannot be reached."""


class WandbAttachFailedError(Error):
    """A run cannot be joined."""
