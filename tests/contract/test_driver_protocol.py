"""What foreign drivers are written against is one module, and its version says when it changed."""

from __future__ import annotations

import ast
import inspect

import pytest

from modelmeter_server.drivers import plugin
from modelmeter_server.drivers.http_driver import WireFormat
from tests.support import ROOT
from tests.support.markdown import code_words, prose, section

DEVELOPMENT = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
RECIPE = prose(section(DEVELOPMENT, "A driver that lives elsewhere"))
EXAMPLE = sorted((ROOT / "tests" / "example_driver").rglob("*.py"))

# What a driver may rely on, for each protocol. What is added keeps the protocol; what goes or changes is a new one.
NAMES = {
    1: """
    Accumulator Authenticator Capabilities capability_violations CompletionRequest Continuation
    counter CredentialsError Draft DriverPlugin embedded embedded_arguments EventDecoder Failure
    failure_before_generation failure_from_http FieldViolation finished FORCED_TOOL GROUP HostedTool
    key_header loads_event MediaKind MediaPart Message ModelSpec native_prompt NotJson parameters
    PreparedRequest PROTOCOL ProviderError ReasoningDelta ReasoningEffort refused RequestRefused
    Role RunningTotals SchemaMode SettingError Stage state_turns Stop TextBuffer TextDelta TextPart
    Tool ToolCall ToolCallDelta ToolCallPart ToolChoice ToolMode ToolResultPart Usage WireFormat
    word
    """
}
HOOKS = {
    1: {
        "_draft",
        "_forced_arguments",
        "_open_calls",
        "_reasoning",
        "_stop_reason",
        "_take_document",
        "_take_members",
        "_text",
        "_usage",
        "_usage_is_final",
    }
}
ROW = {1: {"kind", "capabilities", "encode", "accumulator", "authenticate"}}


def test_nothing_that_a_driver_may_import_goes_without_a_new_protocol():
    assert set(NAMES[plugin.PROTOCOL].split()) <= set(plugin.__all__)
    assert all(hasattr(plugin, name) for name in plugin.__all__)


def test_a_driver_needs_no_more_than_it_needed_when_it_was_written():
    assert set(plugin.Accumulator.__abstractmethods__) == HOOKS[plugin.PROTOCOL]
    signature = inspect.signature(WireFormat)
    required = {
        name for name, each in signature.parameters.items() if each.default is inspect.Parameter.empty
    }
    assert required == ROW[plugin.PROTOCOL]


@pytest.mark.parametrize("file", EXAMPLE, ids=lambda file: file.name)
def test_the_example_imports_nothing_else_of_the_server(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            assert not node.module.startswith("modelmeter") or node.module == plugin.__name__
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.startswith("modelmeter")]


def test_the_recipe_names_the_hooks_the_group_and_the_module():
    assert HOOKS[plugin.PROTOCOL] | {plugin.GROUP, plugin.__name__, "DriverPlugin"} <= set(code_words(RECIPE))
    assert f"`PROTOCOL`, {plugin.PROTOCOL} in this version" in " ".join(RECIPE.split())
