"""What the exit codes of `modelmeter call` and `modelmeter models` mean."""

from __future__ import annotations

from enum import IntEnum, unique

from modelmeter.enums import Cause, Disposition, ErrorKind
from modelmeter.errors import LostContactError, ModelmeterError, NotConnectedError


@unique
class Exit(IntEnum):
    """Exit codes, by what a script does about them."""

    COMPLETION = 0
    """It worked."""
    USAGE = 2
    """The command line is wrong; nothing was sent. The shell's convention, and click's."""
    REFUSED = 3
    """The request was judged wrong. Repeating it is pointless."""
    LATER = 4
    """Too much at the moment. Repeat after the time that the error names."""
    UNAVAILABLE = 5
    """Not reached, or no evidence that it generated. Repeat; the error says whether it may be billed twice."""
    LANDED = 6
    """It generated, and there is no answer. It is billed; repeating is a second bill."""
    STOPPED = 7
    """A ceiling, an operator or the journal says no."""
    NO_OUTCOME = 8
    """Cancelled, out of time, or contact was lost. It may be billed."""
    BUG = 70
    """A fault of the server, or of this program. EX_SOFTWARE of sysexits.h."""


EXIT_BY_KIND = {
    ErrorKind.UNREACHABLE: Exit.UNAVAILABLE,
    ErrorKind.REFUSED: Exit.REFUSED,
    ErrorKind.RATE_LIMITED: Exit.LATER,
    ErrorKind.UNAVAILABLE: Exit.UNAVAILABLE,
    ErrorKind.INTERRUPTED: Exit.LANDED,
    ErrorKind.UNACCOUNTED: Exit.LANDED,
    ErrorKind.UNUSABLE: Exit.LANDED,
    ErrorKind.CEILING: Exit.STOPPED,
    ErrorKind.OVERLOADED: Exit.LATER,
    ErrorKind.DRAINING: Exit.LATER,
    ErrorKind.LEDGER_DOWN: Exit.UNAVAILABLE,
    ErrorKind.HALTED: Exit.STOPPED,
    ErrorKind.DIVERGED: Exit.STOPPED,
    ErrorKind.OUTCOME_GONE: Exit.STOPPED,
    ErrorKind.REPLAY_MISS: Exit.STOPPED,
    ErrorKind.CALL_ID_CONFLICT: Exit.STOPPED,
    ErrorKind.BUG: Exit.BUG,
}


def exit_of(error: ModelmeterError) -> Exit:
    """Return the exit code of a failed call; a kind newer than this program goes by whether it happened."""
    if isinstance(error, NotConnectedError):
        return Exit.UNAVAILABLE
    if isinstance(error, LostContactError) or error.cause in (Cause.CALLER, Cause.DEADLINE):
        return Exit.NO_OUTCOME
    by_disposition = {
        Disposition.LANDED: Exit.LANDED,
        Disposition.DID_NOT_HAPPEN: Exit.UNAVAILABLE,
    }
    return EXIT_BY_KIND.get(error.kind) or by_disposition.get(error.disposition, Exit.NO_OUTCOME)
