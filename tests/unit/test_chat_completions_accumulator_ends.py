"""How a chat can end: whole without its tail, cut, failed, or stopped from outside (R-C1 to R-C3, R-E0 to R-E2)."""

from __future__ import annotations

import msgspec
import pytest

from modelmeter_server.core.accumulators import ChatCompletionsAccumulator
from modelmeter_server.core.answers import Answer, Finish
from modelmeter_server.core.dialects import DIALECTS, OPENAI
from modelmeter_server.core.outcomes import Cause, Certainty, Code, End, Kind
from tests.support import chat_events as wire
from tests.support.wire_bytes import answer, body, ending, failed, frame, read, sse

SILENCE = ending(End.CUT, cause=Cause.IDLE_TIMEOUT)
TEXT = [wire.role(), wire.text("Hello")]
QUIET = DIALECTS["snowflake"]


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET, SILENCE])
def test_finish_reason_makes_it_whole_whatever_becomes_of_the_tail(end: End):
    outcome = read(ChatCompletionsAccumulator(), sse(*TEXT, wire.finish()), end)
    assert isinstance(outcome, Answer)
    assert (outcome.text, outcome.usage, outcome.certainty) == ("Hello", None, Certainty.UNKNOWN)
    assert outcome.estimated_output_tokens == 2


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET, SILENCE])
def test_finish_reason_and_usage_are_a_completion_without_done(end: End):
    outcome = read(ChatCompletionsAccumulator(), sse(*TEXT, wire.finish(), wire.usage()), end)
    assert (isinstance(outcome, Answer), outcome.certainty) == (True, Certainty.EXACT)


def test_only_the_tail_is_waited_for_after_finish_reason_and_nothing_after_done():
    accumulator = ChatCompletionsAccumulator()
    accumulator.feed(sse(*TEXT))
    assert not accumulator.awaits_tail
    accumulator.feed(sse(wire.finish()))
    assert (accumulator.awaits_tail, accumulator.done) == (True, False)
    accumulator.feed(sse(wire.usage(), wire.DONE, {"error": {"message": "late"}}))
    assert accumulator.done
    assert isinstance(accumulator.finish(ending(End.RESET)), Answer)


@pytest.mark.parametrize(
    "more",
    [wire.text(" you"), wire.said(reasoning="hm"), wire.fragment(index=0, id="c", name="f", arguments="{}")],
)
def test_a_stop_reason_is_no_end_of_what_goes_on_after_it(more: object):
    early = [*TEXT, wire.finish("stop", usage=wire.USAGE), more]
    for end in (End.RESET, SILENCE):
        cut = failed(ChatCompletionsAccumulator(), sse(*early), end)
        assert (cut.kind, cut.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)
        for tail in ([wire.finish()], [wire.usage({**wire.USAGE, "completion_tokens": 9})], [wire.DONE]):
            assert isinstance(read(ChatCompletionsAccumulator(), sse(*early, *tail), end), Answer)
    whole = answer(ChatCompletionsAccumulator(), sse(*early))
    assert whole.certainty is Certainty.AT_LEAST
    told = answer(ChatCompletionsAccumulator(), sse(*early, wire.finish("stop", usage=wire.USAGE)))
    assert told.certainty is Certainty.EXACT


def test_what_goes_on_is_not_hurried_by_the_timeout_of_a_tail():
    accumulator = ChatCompletionsAccumulator()
    waits = []
    for event in (wire.finish(), wire.said(role="assistant", content=""), wire.text("a"), wire.finish()):
        accumulator.feed(sse(event))
        waits.append(accumulator.awaits_tail)
    assert waits == [True, True, False, True]


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
@pytest.mark.parametrize("tail", [[], [wire.finish()], [wire.finish(), wire.DONE]])
def test_groqs_word_for_a_stream_that_it_stopped_is_an_error(tail: list[object], end: End):
    stopped = wire.chunk(x_groq={"id": "req_1", "error": "over capacity", "usage": wire.USAGE})
    outcome = failed(ChatCompletionsAccumulator(), sse(*TEXT, *tail[:1], stopped, *tail[1:]), end)
    certainty = Certainty.EXACT if tail else Certainty.AT_LEAST
    assert (outcome.kind, outcome.cause, outcome.certainty) == (Kind.INTERRUPTED, Cause.PROVIDER, certainty)
    first = failed(ChatCompletionsAccumulator(), sse(wire.chunk(x_groq={"error": "over capacity"})), end)
    assert first.kind is Kind.UNAVAILABLE
    document = body(wire.document(x_groq={"id": "req_1", "error": "over capacity"}))
    assert failed(ChatCompletionsAccumulator(), document).kind is Kind.INTERRUPTED


@pytest.mark.parametrize("end", [End.CLEAN, End.RESET])
def test_done_alone_proves_nothing(end: End):
    outcome = failed(ChatCompletionsAccumulator(), sse(*TEXT, wire.DONE), end)
    assert (outcome.kind, outcome.partial_text) == (Kind.UNACCOUNTED, "Hello")


def test_a_stream_severed_after_generation_is_not_free_to_retry():
    proofs = [
        wire.text("a"),
        wire.said(refusal="No"),
        wire.said(reasoning="hm"),
        wire.fragment(index=0, arguments="{"),
        wire.said(reasoning_details=[{"type": "reasoning.encrypted", "data": "eA=="}]),
    ]
    for proof in proofs:
        outcome = failed(ChatCompletionsAccumulator(), sse(wire.role(), proof), End.RESET)
        assert (outcome.kind, outcome.retryable) == (Kind.UNACCOUNTED, False), proof


def test_a_stream_severed_before_generation_is_safe_to_repeat():
    nothing = [
        wire.role(),
        wire.said(content=None, refusal=None, tool_calls=[], channel="analysis"),
        wire.chunk(),
    ]
    outcome = failed(ChatCompletionsAccumulator(), sse(*nothing), End.CLEAN)
    assert (outcome.kind, outcome.may_have_generated) == (Kind.UNAVAILABLE, True)


def test_running_usage_is_a_lower_bound_where_the_stream_is_cut():
    running = wire.chunk(wire.choice({"content": "a"}), usage=wire.USAGE)
    outcome = failed(ChatCompletionsAccumulator(), sse(running), End.RESET)
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_a_dialect_without_finish_reason_is_whole_at_both_counts_and_done():
    def quiet(*events: object) -> object:
        return read(ChatCompletionsAccumulator(dialect=QUIET), sse(*TEXT, *events))

    whole = quiet(wire.usage(), wire.DONE)
    assert isinstance(whole, Answer)
    assert (whole.stop_reason, whole.finish, whole.certainty) == ("", Finish.STOP, Certainty.EXACT)
    for tail in ([wire.usage()], [wire.DONE], [wire.usage({"prompt_tokens": 3}), wire.DONE]):
        assert not isinstance(quiet(*tail), Answer)
    plain = failed(ChatCompletionsAccumulator(), sse(*TEXT, wire.usage(), wire.DONE))
    assert (plain.kind, plain.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_a_dialect_names_stop_reasons_of_its_own():
    def zai(reason: str) -> object:
        return read(ChatCompletionsAccumulator(dialect=DIALECTS["zai"]), wire.stream("Hi", reason=reason))

    assert [getattr(zai(reason), "kind", None) for reason in ("sensitive", "network_error", "stop")] == [
        Kind.UNUSABLE,
        Kind.INTERRUPTED,
        None,
    ]
    passed = answer(ChatCompletionsAccumulator(), wire.stream("Hi", reason="sensitive"))
    assert (passed.finish, passed.stop_reason) == (Finish.UNRECOGNIZED, "sensitive")


# Errors


def test_an_error_before_the_end_marker_wins_over_the_finish_and_keeps_the_usage():
    error = {"error": {"code": 502, "message": "synthetic"}}
    outcome = failed(ChatCompletionsAccumulator(), sse(*TEXT, wire.finish(), wire.usage(), error, wire.DONE))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.EXACT)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"code": 400, "message": "synthetic"}}, Kind.REFUSED),
        ({"error": {"code": 429}}, Kind.RATE_LIMITED),
        ({"error": {"code": "insufficient_quota"}}, Kind.REFUSED),
        ({"error": "synthetic"}, Kind.UNAVAILABLE),
        ({"error": {"type": "of_tomorrow", "status_code": 400}}, Kind.REFUSED),
        ({"object": "error", "type": "of_tomorrow", "raw_status_code": 429}, Kind.RATE_LIMITED),
        ({"error_type": "rate_limit", "error_message": "synthetic"}, Kind.RATE_LIMITED),
        ({"object": "error", "type": "invalid_model", "message": "synthetic"}, Kind.REFUSED),
        (wire.chunk(error={"code": 503}), Kind.UNAVAILABLE),
        (wire.chunk(wire.choice({}, "error", error={"code": 429})), Kind.RATE_LIMITED),
        (wire.chunk(wire.choice({}, "error"), error={"code": 401}), Kind.REFUSED),
        (wire.finish("error"), Kind.UNAVAILABLE),
    ],
)
def test_an_error_is_found_in_every_shape_and_goes_by_its_code_before_generation(error: object, kind: Kind):
    assert failed(ChatCompletionsAccumulator(), sse(wire.role(), error, wire.DONE)).kind is kind
    late = failed(ChatCompletionsAccumulator(), sse(*TEXT, error, wire.DONE))
    assert late.kind is Kind.UNACCOUNTED


def test_finish_reason_error_is_no_end():
    outcome = failed(ChatCompletionsAccumulator(), sse(*TEXT, wire.finish("error"), wire.usage(), wire.DONE))
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_what_the_stream_says_besides_finish_reason_error_is_the_error():
    events = [wire.finish("error"), {"error": {"code": 429}}]
    assert failed(ChatCompletionsAccumulator(), sse(*events)).kind is Kind.RATE_LIMITED
    named = frame({"error": {"code": 402}}, "error")
    assert failed(ChatCompletionsAccumulator(), sse(wire.finish("error")) + named).kind is Kind.REFUSED


def test_null_and_empty_errors_are_none():
    empty: list[object] = [None, "", {}, []]
    for nothing in empty:
        chunk = wire.text("Hello") | {"error": nothing}
        assert answer(ChatCompletionsAccumulator(), sse(chunk, *wire.ended())).text == "Hello"


# One JSON body


def test_a_body_is_the_same_answer_as_its_stream():
    streamed = answer(ChatCompletionsAccumulator(), wire.stream("Hello"))
    assert answer(ChatCompletionsAccumulator(), wire.whole()) == streamed


def test_the_usage_of_a_whole_body_is_exact_wherever_it_stands():
    document = wire.document()
    turned = {"usage": document.pop("usage"), **document}
    assert answer(ChatCompletionsAccumulator(), body(turned)).certainty is Certainty.EXACT
    cut = body(turned)[:-1]
    outcome = failed(ChatCompletionsAccumulator(), cut, End.RESET)
    assert (outcome.kind, outcome.certainty) == (Kind.INTERRUPTED, Certainty.AT_LEAST)


def test_a_body_without_a_stop_reason_is_whole_all_the_same():
    outcome = answer(ChatCompletionsAccumulator(), wire.whole(reason=None))
    assert (outcome.finish, outcome.stop_reason) == (Finish.UNRECOGNIZED, "")
    assert answer(ChatCompletionsAccumulator(dialect=QUIET), wire.whole(reason=None)).finish is Finish.STOP


@pytest.mark.parametrize("choices", [[], None, [None], [{}], [{"text": "Hello"}], "x", [{"message": None}]])
def test_a_body_without_a_message_is_unusable_with_its_bill(choices: object):
    outcome = failed(ChatCompletionsAccumulator(), body({**wire.document(), "choices": choices}))
    assert (outcome.kind, outcome.usage is not None) == (Kind.UNUSABLE, True)


def test_choice_0_of_a_body_is_found_by_its_index():
    document = wire.document()
    other = {"index": 1, "message": {"content": "no"}, "finish_reason": "stop"}
    document["choices"].insert(0, other)
    assert answer(ChatCompletionsAccumulator(), body(document)).text == "Hello"


def test_an_error_in_a_body_wins_whatever_its_choices_look_like():
    error = {"error": {"code": 429, "message": "synthetic"}}
    empty = failed(
        ChatCompletionsAccumulator(), wire.whole({"content": ""}, reason=None, figures=None, **error)
    )
    assert empty.kind is Kind.RATE_LIMITED
    spoken = failed(ChatCompletionsAccumulator(), wire.whole(figures=None, **error))
    assert spoken.kind is Kind.UNACCOUNTED
    stopped = failed(ChatCompletionsAccumulator(), wire.whole({"content": ""}, reason="error", figures=None))
    assert stopped.kind is Kind.UNAVAILABLE


def test_the_error_of_a_choice_in_a_body_is_an_error():
    document = wire.document({"content": ""}, reason="error", figures=None)
    document["choices"][0]["error"] = {"code": 400, "message": "synthetic"}
    outcome = failed(ChatCompletionsAccumulator(), body(document))
    assert (outcome.kind, outcome.code) == (Kind.REFUSED, Code.INVALID_ARGUMENT)


# Answers


def test_a_refusal_after_generation_is_metered():
    for data in (
        sse(wire.said(refusal="No"), wire.said(refusal="."), *wire.ended()),
        wire.whole({"content": None, "refusal": "No."}),
    ):
        outcome = failed(ChatCompletionsAccumulator(), data)
        assert (outcome.kind, outcome.certainty) == (Kind.UNUSABLE, Certainty.EXACT)
        assert "No" not in outcome.message


def test_truncation_is_a_typed_fact():
    outcome = answer(ChatCompletionsAccumulator(), wire.stream("Hel", reason="length"))
    assert (outcome.finish, outcome.truncated) == (Finish.LENGTH, True)
    assert answer(ChatCompletionsAccumulator(), wire.stream(reason="length")).text == ""


def test_an_answer_of_media_only_is_unusable():
    audio = {"content": None, "audio": {"id": "a", "data": "QQ==", "transcript": "Hi"}}
    assert failed(ChatCompletionsAccumulator(), wire.whole(audio)).kind is Kind.UNUSABLE


def test_a_malformed_call_is_loud_and_one_without_an_id_is_not():
    broken = [*wire.call(0, '{"a"'), *wire.ended("tool_calls")]
    assert failed(ChatCompletionsAccumulator(), sse(*broken)).kind is Kind.UNUSABLE
    nameless = [wire.fragment(index=0, id="x", arguments="{}"), *wire.ended("tool_calls")]
    assert failed(ChatCompletionsAccumulator(), sse(*nameless)).kind is Kind.UNUSABLE
    without_id = [wire.fragment(index=0, name="look", arguments="{}"), *wire.ended("tool_calls")]
    assert answer(ChatCompletionsAccumulator(), sse(*without_id)).tool_calls[0].id == ""


def test_a_flag_of_the_dialect_changes_nothing_else():
    for flag in ("hidden_output", "no_finish_reason"):
        dialect = msgspec.structs.replace(OPENAI, **{flag: True})
        flagged = answer(ChatCompletionsAccumulator(dialect=dialect), wire.stream("Hello"))
        assert flagged == answer(ChatCompletionsAccumulator(), wire.stream("Hello"))


def test_a_member_nested_too_deeply_costs_neither_the_stop_reason_nor_the_usage():
    deep = b"[" * 100_000 + b"]" * 100_000
    last = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": '
    data = sse(*TEXT) + last + body(wire.USAGE) + b', "z": ' + deep + b"}\n\n"
    outcome = answer(ChatCompletionsAccumulator(), data)
    assert (outcome.text, outcome.truncated, outcome.certainty) == ("Hello", True, Certainty.EXACT)
