"""What goes wrong, by name. Every message tells the reader what to do; none quotes a row.

Anything may import this module; it imports nothing.
"""


class HedgerowError(Exception):
    """Base of the errors that Hedgerow raises on purpose; a parameter of a wrong type is a plain TypeError."""


class InvalidSchema(HedgerowError, ValueError):
    """The public description of the data contradicts itself or leaves something out."""


class InvalidParameter(HedgerowError, ValueError):
    """A parameter of training is out of its range."""


class InvalidTable(HedgerowError, ValueError):
    """A table does not have the shape that the schema promises."""


class InvalidType(InvalidTable, TypeError):
    """A value in a table is of a kind that its column cannot hold."""


class InvalidModel(HedgerowError, ValueError):
    """A model file is damaged, foreign, or of another version."""


class SchemaMismatch(HedgerowError, ValueError):
    """Two parties, or a model and a user, mean different schemas."""


class Refused(HedgerowError):
    """A data holder does not do what it was asked; nothing was released, nothing charged."""


class BudgetExceeded(Refused):
    """A release would cost more than the data holder has granted; nothing was released."""


class InvalidMessage(HedgerowError, ValueError):
    """Bytes that are no message, or a message that nobody may send."""


class InvalidStore(HedgerowError):
    """The file of a holder's studies is damaged, foreign, of another version, or cannot be written."""


class MissingPackage(HedgerowError, ImportError):
    """What was asked for needs a package that does not come with Hedgerow itself."""


class NotPrivateWarning(UserWarning):
    """What a fit with a finite epsilon learns is not private all the same: seeded noise, or a schema from the rows."""


class OwnerWarning(UserWarning):
    """A fact about the rows that their owner should know. Not private: it must not be published.

    `warnings.simplefilter("ignore", OwnerWarning)` switches all of them off.
    """
