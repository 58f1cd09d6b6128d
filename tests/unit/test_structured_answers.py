"""A structured answer is the document and nothing else: what wraps it makes it unusable, and it is paid for."""

from __future__ import annotations

import pytest

from modelmeter_server.core.answers import Answer, Expectation
from modelmeter_server.core.errors import Failure
from modelmeter_server.core.ladder import Evidence
from modelmeter_server.core.outcomes import Certainty, Kind
from modelmeter_server.core.stop_reasons import Stop
from modelmeter_server.core.usage import Usage
from modelmeter_server.core.verdict import Draft, judge

DOCUMENT = '{"city":"Paris"}'
EVIDENCE = Evidence(generated=True, usage=Usage(input_tokens=5, output_tokens=2), usage_is_final=True)


def anything(document: object) -> str | None:
    """Stand for a schema that everything satisfies: only the reading decides."""
    return None


@pytest.mark.parametrize("enforce", [False, True])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{DOCUMENT}\n```",
        f"```\n{DOCUMENT}\n```",
        f"`{DOCUMENT}`",
        f"Here it is: {DOCUMENT}",
        f"{DOCUMENT} Anything else?",
        f"{DOCUMENT}{DOCUMENT}",
        f"{DOCUMENT},",
        f"({DOCUMENT})",
        DOCUMENT.replace('"', "'"),
        DOCUMENT[:-1],
        '{"city":"Paris",}',
        '{"city":"Paris" /* France */}',
        '{"city":NaN}',
        '{"city":-Infinity}',
        '{"city":True}',
    ],
)
def test_nothing_around_or_inside_a_document_is_mended(text: str, forced: bool, enforce: bool):
    expect = Expectation(schema_check=anything, forced_tool=forced, enforce=enforce)
    for answer, usable in ((DOCUMENT, True), (text, False)):
        arguments = answer if forced else None
        draft = Draft(
            text="" if forced else answer,
            stop=Stop.FINISHED,
            stop_reason="end_turn",
            evidence=EVIDENCE,
            forced_arguments=arguments,
        )
        outcome = judge(draft, expect)
        assert isinstance(outcome, Answer) is usable
        assert (outcome.usage, outcome.certainty) == (EVIDENCE.usage, Certainty.EXACT)
        assert usable or (isinstance(outcome, Failure) and outcome.kind is Kind.UNUSABLE)
