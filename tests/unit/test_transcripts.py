"""What was said in a session, kept as far as it is known and fits."""

from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.core.answers import Answer, ToolCall
from modelmeter_server.core.requests import Continuation, Message, Role, TextPart, ToolCallPart
from modelmeter_server.core.transcripts import Transcript
from tests.support.completion_requests import ask, ask_messages, ask_native

TEXT = st.text(min_size=1, max_size=20)


def texts(request):
    return [(message.role, part.text) for message in request.messages for part in message.parts]


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), TEXT)
def test_a_turn_comes_behind_all_turns_before_it(turns, last):
    transcript = Transcript()
    expected = []
    for asked, answered in turns:
        transcript.add(ask(asked), Answer(text=answered))
        expected += [(Role.USER, asked), (Role.ASSISTANT, answered)]
    assert texts(transcript.before(ask(last))) == [*expected, (Role.USER, last)]


def messages_of(transcript):
    messages = transcript.before(ask("b")).messages
    assert messages is not None
    return messages


def test_a_first_turn_is_sent_as_it_is():
    request = ask("Hi")
    assert Transcript().before(request) is request


def test_a_continuation_stands_for_the_whole_answer():
    transcript = Transcript()
    state = Continuation("openai_responses", '[{"type":"reasoning"}]')
    transcript.add(ask("a"), Answer(text="x", continuation=state))
    message = messages_of(transcript)[1]
    assert message == Message(Role.ASSISTANT, (state,))


def test_calls_without_a_continuation_are_kept_beside_the_text():
    transcript = Transcript()
    call = ToolCall(id="c", name="look", arguments_json="{}")
    transcript.add(ask_messages(Message(Role.USER, (TextPart("a"),))), Answer(text="x", tool_calls=(call,)))
    parts = messages_of(transcript)[1].parts
    assert parts == (TextPart("x"), ToolCallPart(id="c", name="look", arguments_json="{}"))


def test_an_answer_without_words_leaves_only_the_question():
    transcript = Transcript()
    transcript.add(ask("a"), Answer(text=""))
    assert texts(transcript.before(ask("b"))) == [(Role.USER, "a"), (Role.USER, "b")]


def test_what_has_no_room_or_is_not_understood_costs_the_whole_transcript():
    for request, limit in ((ask("x" * 1_000), 500), (ask_native('[{"role":"user","content":"x"}]'), 10_000)):
        transcript = Transcript(limit)
        transcript.add(request, Answer(text="y"))
        transcript.add(ask("short"), Answer(text="y"))
        assert (transcript.is_whole, len(transcript), transcript.bytes) == (False, 0, 0)
        transcript.clear()
        transcript.add(ask("a"), Answer(text="y"))
        assert (transcript.is_whole, len(transcript)) == (True, 2)


@given(st.lists(TEXT, max_size=30), st.integers(0, 400))
def test_a_transcript_never_outgrows_its_limit(said, limit):
    transcript = Transcript(limit)
    for text in said:
        transcript.add(ask(text), Answer(text=text))
        assert transcript.bytes <= limit
