"""TVM's names of errors. Treadle's own errors are raised as well; each is also the built-in exception that it resembles."""

from __future__ import annotations

from ..formats.messages.errors import TreadleError

TVMError = TreadleError


class InternalError(TVMError):
    """What should not happen did."""


class OpError(TVMError):
    """An operator cannot be compiled."""


class OpNotImplemented(OpError, NotImplementedError):
    """There is no such operator."""


class OpAttributeRequired(OpError, AttributeError):
    """An operator lacks an attribute."""


class OpAttributeInvalid(OpError, AttributeError):
    """An operator's attribute has a wrong value."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """An operator's attribute is not supported."""


class RPCError(TVMError):
    """Something remote failed."""


class RPCSessionTimeoutError(RPCError):
    """A remote session has ended."""


class DiagnosticError(TVMError):
    """A program is wrong; messages before this one said how."""
