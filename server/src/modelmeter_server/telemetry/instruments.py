"""What is counted about calls and RPCs. Every call is counted, whatever is sampled for show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from modelmeter_server.core.errors import Failure
from modelmeter_server.core.outcomes import Certainty, Disposition

from . import conventions as names
from .meters import FIRST_SECONDS, OTHER, RPC_SECONDS, SECONDS, TOKENS, Meters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from modelmeter_server.core.answers import Answer
    from modelmeter_server.core.calls import Attempt, CallOutcome
    from modelmeter_server.core.models import ModelSpec
    from modelmeter_server.core.usage import Usage

ANSWERED: Final = "OK"
"""The outcome of a call that answered."""

_PARTS: Final = (
    ("input_tokens", "input_tokens"),
    ("output_tokens", "output_tokens"),
    ("cache_read_tokens", "cache_read.input_tokens"),
    ("cache_write_tokens", "cache_write.input_tokens"),
    ("reasoning_tokens", "reasoning.output_tokens"),
)
"""Counters of `Usage`, and what the conventions call them."""


def provider_name(model: ModelSpec | None) -> str:
    """Return what the conventions call the model's provider."""
    return OTHER if model is None else names.PROVIDERS.get(model.provider_kind, model.provider_kind)


def outcome_word(result: Answer | Failure) -> str:
    """Return `OK` or the kind of the failure."""
    return result.kind.value if isinstance(result, Failure) else ANSWERED


class Instruments:
    """The instruments of one server process."""

    def __init__(self, meters: Meters, *, old_names: bool = False, by_tenant: bool = False) -> None:
        """Write the GenAI names of before as well if `old_names`; tell tenants apart if `by_tenant`."""
        self.meters = meters
        self._by_tenant = by_tenant
        genai = (names.OPERATION, names.PROVIDER, names.REQUEST_MODEL)
        self._rpc = meters.histogram(
            names.RPC_SERVER_DURATION,
            "s",
            "How long RPCs took, streams until their end.",
            RPC_SECONDS,
            names.RPC_SYSTEM,
            names.RPC_METHOD,
            names.RPC_STATUS,
            names.ERROR_TYPE,
        )
        self._attempts = meters.histogram(
            names.INFERENCE_DURATION,
            "s",
            "How long requests to providers took, each attempt by itself.",
            SECONDS,
            *genai,
            names.ERROR_TYPE,
        )
        self._first_chunk = meters.histogram(
            names.INFERENCE_FIRST_CHUNK,
            "s",
            "From the request leaving to the first output.",
            FIRST_SECONDS,
            *genai,
        )
        self._requests = meters.histogram(
            names.SERVER_DURATION,
            "s",
            "How long calls took here, from arrival to their end.",
            SECONDS,
            *genai,
            names.ERROR_TYPE,
        )
        self._first_token = meters.histogram(
            names.SERVER_FIRST_TOKEN,
            "s",
            "From a call's arrival to its first output.",
            FIRST_SECONDS,
            *genai,
        )
        self._usage = {
            field: meters.counter(
                names.INFERENCE_USAGE + name,
                "{token}",
                f"Tokens as providers told them: {name.replace('_', ' ').replace('.', ', ')}.",
                *genai,
            )
            for field, name in _PARTS
        }
        self._input = meters.histogram(
            names.INFERENCE_INPUT, "{token}", "Input tokens of single calls.", TOKENS, *genai
        )
        self._output = meters.histogram(
            names.INFERENCE_OUTPUT, "{token}", "Output tokens of single calls.", TOKENS, *genai
        )
        tenant = (names.TENANT,) if by_tenant else ()
        self._calls = meters.counter(
            names.CALLS,
            "{call}",
            "Calls by how they ended, whether they landed, and how sure their bill is.",
            names.REQUEST_MODEL,
            names.OUTCOME,
            names.DISPOSITION,
            names.CERTAINTY,
            *tenant,
        )
        self._cost = meters.counter(
            names.COST,
            "{nano_unit}",
            "What calls cost, in billionths of the currency.",
            names.REQUEST_MODEL,
            names.CURRENCY,
            *tenant,
        )
        self._queue = meters.histogram(
            names.QUEUE_TIME,
            "s",
            "From a call's arrival to its request leaving.",
            FIRST_SECONDS,
            names.REQUEST_MODEL,
        )
        self._replays = meters.counter(
            names.REPLAYS,
            "{call}",
            "Calls that were answered from the journal, or by one that ran already.",
            names.REQUEST_MODEL,
            names.OUTCOME,
        )
        self._retries = meters.counter(
            names.RETRIES, "{attempt}", "Attempts after the first one.", names.TARGET
        )
        self._target_states = meters.gauge(
            names.TARGET_STATE,
            "1",
            "Whether calls are sent to a target: 0 they are, 1 a few find out, 2 they are not.",
            names.TARGET,
        )
        self._target_changes = meters.counter(
            names.TARGET_CHANGES,
            "{event}",
            "How often a target's breaker came into a state.",
            names.TARGET,
            names.STATE,
        )
        self._passed_over = meters.counter(
            names.PASSED_OVER,
            "{call}",
            "Calls that were not sent to a target although it came first, by the reason.",
            names.TARGET,
            names.REASON,
        )
        self._soft_limits = meters.counter(
            names.SOFT_LIMITS, "{event}", "Shares of ceilings that were passed.", names.SCOPE, names.PERCENT
        )
        self._reconciliations = meters.counter(
            names.RECONCILIATIONS,
            "{event}",
            "Truer figures that were offered, by whom and whether they were taken.",
            names.BY,
            names.OUTCOME,
        )
        self._halts = meters.counter(
            names.HALTS, "{event}", "Halts that operators set or cleared.", names.SCOPE, names.OUTCOME
        )
        self._reloads = meters.counter(
            names.RELOADS,
            "{reload}",
            "Configurations that were read again: applied, unchanged, refused.",
            names.OUTCOME,
        )
        self.ledger_tokens = meters.gauge(
            names.LEDGER_TOKENS,
            "{token}",
            "Tokens in the ledger: settled, held, unsettled, written off.",
            names.STATE,
        )
        self.ledger_cost = meters.gauge(
            names.LEDGER_COST,
            "{nano_unit}",
            "Money in the ledger, in billionths of the currency: settled, held, unsettled, written off.",
            names.STATE,
            names.CURRENCY,
        )
        self._old = _OldNames(meters) if old_names else None

    def ask(self, name: str, unit: str, description: str, level: Callable[[], float]) -> None:
        """Add a level that is asked for when it is read."""
        self.meters.gauge(name, unit, description, ask=level)

    def rpc_ended(self, method: str, code: str, seconds: float) -> None:
        """Count an RPC; `code` is the name of its status."""
        self._rpc.record(seconds, "grpc", method, code, "" if code == "OK" else code)

    def retried(self, target: str) -> None:
        """Count an attempt after the first one."""
        self._retries.add(1, target)

    def target_changed(self, target: str, state: str) -> None:
        """Count that the breaker of a target came into a state."""
        self._target_changes.add(1, target, state)

    def targets_stand(self, levels: Iterable[tuple[str, int]]) -> None:
        """Take over how all targets fare, each with its level."""
        self._target_states.replace([((target,), float(level)) for target, level in levels])

    def call_ended(
        self, outcome: CallOutcome, attempts: Sequence[Attempt], operation: str, tenant: str
    ) -> None:
        """Count a call. One that was replayed bought nothing: it did not land again, and its bill is none."""
        result, model = outcome.result, outcome.model
        name = OTHER if model is None else model.name
        word = outcome_word(result)
        owner = (tenant,) if self._by_tenant else ()
        if outcome.replayed:
            # Else each replay of a call that nobody accounts for would be another one.
            self._calls.add(1, name, word, Disposition.DID_NOT_HAPPEN.value, Certainty.NONE.value, *owner)
            self._replays.add(1, name, word)
            return
        landed = result.disposition.value if isinstance(result, Failure) else Disposition.LANDED.value
        self._calls.add(1, name, word, landed, result.certainty.value, *owner)
        for each in outcome.passed_over:
            self._passed_over.add(1, each.target, each.reason.value)
        genai = (operation, provider_name(model), name)
        times = outcome.timings
        self._requests.record(times.total, *genai, "" if word == ANSWERED else word)
        if times.first_token is not None:
            self._first_chunk.record(times.first_token, *genai)
            self._first_token.record(times.queue + times.first_token, *genai)
        if attempts:
            self._queue.record(times.queue, name)
        for attempt in attempts:
            error = "" if attempt.kind is None else attempt.kind.value
            self._attempts.record(attempt.elapsed, *genai, error)
        if result.usage is not None:
            self._count(result.usage, genai)
        if result.cost is not None:
            self._cost.add(result.cost.nano_units, name, result.cost.currency, *owner)
        if self._old is not None:
            self._old.call_ended(outcome, attempts, genai)

    def _count(self, usage: Usage, genai: tuple[str, str, str]) -> None:
        for field, _ in _PARTS:
            told = getattr(usage, field)
            if told:
                self._usage[field].add(told, *genai)
        if usage.input_tokens is not None:
            self._input.record(usage.input_tokens, *genai)
        if usage.output_tokens is not None:
            self._output.record(usage.output_tokens, *genai)

    def soft_limit_passed(self, scope: str, percent: int) -> None:
        """Count a passed share of a ceiling."""
        self._soft_limits.add(1, scope, str(percent))

    def reconciled(self, by: str, *, raised: bool) -> None:
        """Count a truer figure."""
        self._reconciliations.add(1, by, "raised" if raised else "unchanged")

    def halted(self, scope: str, *, cleared: bool) -> None:
        """Count a halt that was set or cleared."""
        self._halts.add(1, scope, "cleared" if cleared else "set")

    def reloaded(self, outcome: str) -> None:
        """Count a configuration that was read again."""
        self._reloads.add(1, outcome)

    def ledger_stands(self, sums: Iterable[tuple[str, str, float]]) -> None:
        """Take over what stands in the ledger: state, currency (empty for tokens), amount."""
        found = list(sums)
        self.ledger_tokens.replace([((state,), amount) for state, unit, amount in found if not unit])
        self.ledger_cost.replace([((state, unit), amount) for state, unit, amount in found if unit])


class _OldNames:
    """The GenAI instruments of before."""

    def __init__(self, meters: Meters) -> None:
        genai = (names.OPERATION, names.OLD_SYSTEM, names.REQUEST_MODEL)
        self._duration = meters.histogram(
            names.OLD_DURATION,
            "s",
            "How long requests to providers took.",
            SECONDS,
            *genai,
            names.ERROR_TYPE,
        )
        self._first = meters.histogram(
            names.OLD_FIRST_CHUNK,
            "s",
            "From the request leaving to the first output.",
            FIRST_SECONDS,
            *genai,
        )
        self._tokens = meters.histogram(
            names.OLD_TOKENS, "{token}", "Tokens of single calls.", TOKENS, *genai, names.OLD_TOKEN_TYPE
        )

    def call_ended(
        self, outcome: CallOutcome, attempts: Sequence[Attempt], genai: tuple[str, str, str]
    ) -> None:
        for attempt in attempts:
            self._duration.record(attempt.elapsed, *genai, "" if attempt.kind is None else attempt.kind.value)
        if outcome.timings.first_token is not None:
            self._first.record(outcome.timings.first_token, *genai)
        usage = outcome.result.usage
        if usage is not None and usage.input_tokens is not None:
            self._tokens.record(usage.input_tokens, *genai, "input")
        if usage is not None and usage.output_tokens is not None:
            self._tokens.record(usage.output_tokens, *genai, "output")
