"""Every snippet of the documentation of tools that this project follows, and the test of its counterpart.

The documents: LangChain4j's tutorial "Tools (Function Calling)" in its older and its newer edition, the reference of
its ``@Tool``, the guide to its tools of version 1.11 (Tessl's ``tools.md``), and Bedrock's "Call a tool with the
Converse API". The headings are theirs.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.seeds.items import COVERED, DIFFERENT

TESTS = Path(__file__).resolve().parent.parent
HERE = "seeds/"

TUTORIAL = {
    "An example of a message exchange without tools": "seeds/test_low_level.py::test_without_tools_the_model_guesses",
    "An example of a message exchange with tools": (
        "seeds/test_low_level.py::test_with_tools_two_requests_give_the_answer"
    ),
    "ToolSpecification, manually": "seeds/test_low_level.py::test_a_specification_is_made_by_hand",
    "ToolSpecifications.toolSpecificationsFrom(Class, Object, Method)": (
        "seeds/test_low_level.py::test_specifications_are_made_of_a_class_an_object_and_a_function"
    ),
    "Using ChatModel: chat(ChatRequest), hasToolExecutionRequests()": (
        "seeds/test_low_level.py::test_the_models_requests_are_read_from_its_message"
    ),
    "Using ChatModel: several ToolExecutionRequests": (
        "seeds/test_low_level.py::test_several_tools_may_be_wanted_at_once"
    ),
    "Using ChatModel: ToolExecutionResultMessage.from": (
        "seeds/test_low_level.py::test_results_written_by_hand_are_sent_with_all_previous_messages"
    ),
    "Using StreamingChatModel: onPartialToolCall … onCompleteToolCall": (
        "seeds/test_streaming.py::test_a_streamed_call_comes_in_pieces_and_then_whole"
    ),
    "Using StreamingChatModel: the index of several calls": (
        "seeds/test_streaming.py::test_the_index_tells_the_calls_of_a_stream_apart"
    ),
    "Using StreamingChatModel: StreamingChatResponseHandler": (
        "seeds/test_streaming.py::test_a_token_stream_calls_back_with_the_same_pieces_and_runs_the_tool"
    ),
    "Using StreamingChatModel: onError": ("seeds/test_streaming.py::test_an_error_of_the_model_goes_to_on_error"),
    "Using StreamingChatModel, from synchronous code": (
        "seeds/test_streaming.py::test_synchronous_code_takes_the_events_too"
    ),
    "High Level Tool API: searchGoogle, getWebPageContent": (
        "seeds/test_defining_tools.py::test_a_search_and_a_page_are_tools"
    ),
    "Tool Method Limitations": "seeds/test_defining_tools.py::test_methods_of_any_kind_and_visibility_are_tools",
    "Tool Method Parameters": "seeds/test_defining_tools.py::test_parameters_may_have_many_types",
    "Tool Method Parameters: none": "seeds/test_defining_tools.py::test_a_tool_may_take_nothing",
    "Required and optional: @P(required = false)": (
        "seeds/test_defining_tools.py::test_every_parameter_is_required_unless_it_says_otherwise"
    ),
    "Required and optional: @JsonProperty(required = false)": (
        "seeds/test_defining_tools.py::test_a_field_of_a_nested_object_may_be_optional"
    ),
    "Recursive parameters": "seeds/test_defining_tools.py::test_a_parameter_may_be_recursive",
    "Tool Method Return Types: void": "seeds/test_defining_tools.py::test_nothing_returned_is_success",
    "Tool Method Return Types: String": "seeds/test_defining_tools.py::test_text_is_returned_as_it_is",
    "Tool Method Return Types: others": "seeds/test_defining_tools.py::test_anything_else_is_returned_as_json",
    "AI Services as Tools: RouterAgent and its experts": (
        "seeds/test_ai_services.py::test_services_are_tools_of_a_router"
    ),
    "Exception Handling": "seeds/test_errors.py::test_the_message_of_an_exception_is_what_the_model_reads",
    "@Tool: MathGenius": (
        "seeds/test_ai_services.py::test_the_math_genius_asks_the_model_twice_and_runs_the_tool_in_between"
    ),
    "@Tool: name, value": "seeds/test_defining_tools.py::test_a_name_and_a_description_are_optional",
    "@Description": "seeds/test_defining_tools.py::test_classes_and_fields_are_described",
    "@ToolMemoryId": ("seeds/test_ai_services.py::test_the_memory_id_is_passed_to_tools_and_hidden_from_the_model"),
    "Executing Tools Concurrently: one after another by default": (
        "seeds/test_execution.py::test_by_default_one_tool_follows_the_other"
    ),
    "Executing Tools Concurrently: executeToolsConcurrently()": (
        "seeds/test_execution.py::test_several_tools_run_at_the_same_time_in_threads_of_their_own"
    ),
    "Executing Tools Concurrently: executeToolsConcurrently(Executor)": (
        "seeds/test_execution.py::test_a_number_limits_how_many_run_at_the_same_time"
    ),
    "Executing Tools Concurrently: a single tool": (
        "seeds/test_execution.py::test_a_single_tool_runs_in_the_task_of_its_caller"
    ),
    "Executing Tools Concurrently: StreamingChatModel": (
        "seeds/test_execution.py::test_a_streamed_call_runs_before_the_response_is_whole"
    ),
    "Accessing Executed Tools: Result": "seeds/test_ai_services.py::test_a_result_tells_which_tools_were_executed",
    "Accessing Executed Tools: onToolExecuted": (
        "seeds/test_streaming.py::test_executed_tools_are_told_while_streaming"
    ),
    "Specifying Tools Programmatically": "seeds/test_ai_services.py::test_a_tool_is_specified_by_program",
    "Specifying Tools Dynamically": (
        "seeds/test_ai_services.py::test_a_tool_is_provided_where_the_message_contains_booking"
    ),
    "Tools Hallucination Strategy, by default": (
        "seeds/test_errors.py::test_a_tool_that_does_not_exist_is_answered_with_an_error"
    ),
    "Tools Hallucination Strategy": ("seeds/test_errors.py::test_a_strategy_says_what_becomes_of_a_hallucinated_tool"),
    "Model Context Protocol (MCP)": (
        "seeds/test_testing_patterns.py::test_a_workflow_uses_several_tools_local_and_imported"
    ),
}

REFERENCE = {
    "@Tool: returnBehavior IMMEDIATE": "seeds/test_ai_services.py::test_a_tools_result_may_be_the_answer_at_once",
    "@Tool: IMMEDIATE needs Result": (
        "seeds/test_ai_services.py::test_an_immediate_tool_needs_a_method_that_can_return_its_result"
    ),
    "@Tool: metadata": "seeds/test_defining_tools.py::test_metadata_is_kept_with_the_specification",
    "@Tool: metadata that a provider is sent": (
        "models/anthropic/test_model.py::test_cache_control_is_sent_where_the_adapter_is_told_of_it"
    ),
}

GUIDE = {
    "DefaultToolExecutor Builder: propagateToolExecutionExceptions": (
        "seeds/test_errors.py::test_an_exception_may_stop_the_invocation"
    ),
    "DefaultToolExecutor Builder: wrapToolArgumentsExceptions": (
        "seeds/test_errors.py::test_what_is_wrong_with_arguments_is_what_the_model_reads"
    ),
    "Error Handling: ToolErrorHandlerResult.stop": "seeds/test_errors.py::test_a_handler_may_stop_the_invocation",
    "Tool Execution Context: exceptions in beforeToolExecution": (
        "seeds/test_execution.py::test_what_a_callback_raises_before_a_tool_stops_the_invocation"
    ),
    "Error Handling: ToolErrorHandlerResult.retry": (
        "seeds/test_errors.py::test_a_handler_may_try_again_with_a_corrected_request"
    ),
    "Error Handling: HallucinatedToolNameStrategy.FAIL": ("seeds/test_errors.py::test_a_strategy_may_fail_at_once"),
    "Clear Descriptions, Parameter Documentation": (
        "seeds/test_best_practices.py::test_descriptions_of_tool_and_parameters_reach_the_model"
    ),
    "Return Concise Results": "seeds/test_best_practices.py::test_a_summary_is_shorter_than_everything",
    "Handle Errors Gracefully": "seeds/test_best_practices.py::test_a_tool_says_what_it_cannot_find",
    "Fast vs Slow Tool Separation": "seeds/test_execution.py::test_tools_of_several_objects_run_at_the_same_time",
    "Timeout Protection": "seeds/test_best_practices.py::test_a_tool_has_a_limit_of_time",
    "Caching Results": "seeds/test_best_practices.py::test_a_cache_saves_calls",
    "Input Validation": "seeds/test_best_practices.py::test_input_is_validated",
    "Rate Limiting": "seeds/test_best_practices.py::test_calls_are_limited_in_time",
    "Access Control": (
        "seeds/test_best_practices.py::test_access_is_controlled_by_what_the_program_knows_and_not_by_the_model"
    ),
    "Simple Mock Tool": "seeds/test_testing_patterns.py::test_a_mock_answers_for_the_weather",
    "Recording Tool Invocations": "seeds/test_testing_patterns.py::test_the_order_of_invocations_is_recorded",
    "Failing Tool Simulation": "seeds/test_testing_patterns.py::test_a_tool_that_fails_at_first_is_recovered_from",
    "Verifying Tool Arguments": "seeds/test_testing_patterns.py::test_the_arguments_of_a_tool_are_verified",
    "Testing with Real LLM": "seeds/test_testing_patterns.py::test_a_workflow_uses_several_tools_local_and_imported",
    "Testing Concurrent Execution": (
        "seeds/test_testing_patterns.py::test_concurrent_execution_is_tested_without_a_clock"
    ),
    "Retry with Backoff": "seeds/test_errors.py::test_a_handler_counts_and_stops_in_the_end",
    "Retry with Backoff, by a wrapper": "middleware/test_guards.py::test_what_fails_is_run_again_and_that_is_logged",
    "Fallback Tools": "seeds/test_errors.py::test_a_tool_falls_back_to_another_service",
    "Circuit Breaker Pattern": ("seeds/test_best_practices.py::test_a_circuit_breaker_leaves_a_failing_service_alone"),
    "Graceful Degradation": "seeds/test_errors.py::test_a_tool_degrades_to_what_it_remembers",
    "Tool Execution Logger": "seeds/test_debugging.py::test_executions_are_logged",
    "Tool Performance Monitor": "seeds/test_debugging.py::test_the_performance_of_tools_is_reported",
    "Tool Request Inspector": (
        "seeds/test_debugging.py::test_requests_are_inspected_with_the_memory_id_and_the_type_of_each_argument"
    ),
    "Comprehensive Debug Tool": "seeds/test_debugging.py::test_tools_for_debugging_stand_beside_the_others",
    "Basic Tool Usage": "seeds/test_ai_services.py::test_the_basic_usage_multiplies",
    "Tool with Complex Parameters": "seeds/test_defining_tools.py::test_a_record_of_several_fields_is_one_parameter",
    "Multiple Tool Classes": "seeds/test_ai_services.py::test_tools_of_several_classes_are_used_together",
    "Tool Execution Callbacks": "seeds/test_execution.py::test_callbacks_are_called_before_and_after_a_tool",
    "Concurrent Tool Execution": "seeds/test_execution.py::test_tools_of_several_objects_run_at_the_same_time",
    "Tool Error Handling": (
        "seeds/test_errors.py::test_handlers_say_what_the_model_reads_of_wrong_arguments_and_of_failures"
    ),
    "Dynamic Tool Provider": "seeds/test_ai_services.py::test_tools_are_provided_by_what_the_message_is_about",
    "Limiting Tool Invocations": "seeds/test_ai_services.py::test_the_number_of_round_trips_is_limited",
    "Hallucinated Tool Name Handling": (
        "seeds/test_errors.py::test_a_tool_that_does_not_exist_is_answered_with_an_error"
    ),
    "Tool with Context Access": (
        "seeds/test_ai_services.py::test_the_memory_id_is_passed_to_tools_and_hidden_from_the_model"
    ),
    "Programmatic Tool Registration": "seeds/test_ai_services.py::test_a_tool_is_specified_by_program",
    "Immediate Return Tools": "seeds/test_ai_services.py::test_a_tools_result_may_be_the_answer_at_once",
}

BEDROCK = {
    "Step 1: Send the message and tool definition": (
        "models/bedrock/test_top_song.py::test_step_1_the_message_and_the_tool_definition_are_sent"
    ),
    "Step 1: force the use of a tool": ("models/bedrock/test_top_song.py::test_step_1_the_use_of_a_tool_can_be_forced"),
    "Step 2: Get the tool request from the model": (
        "models/bedrock/test_top_song.py::test_step_2_the_tool_request_is_read"
    ),
    "Step 3: Make the tool request for the model, and its error": (
        "models/bedrock/test_top_song.py::test_step_3_the_result_or_the_error_is_told"
    ),
    "Step 4: Get the model response": "models/bedrock/test_top_song.py::test_step_4_the_answer_is_read",
}

DOCUMENTS = {"tutorial": TUTORIAL, "reference": REFERENCE, "guide": GUIDE, "bedrock": BEDROCK}
COUNTERPARTS = {f"{name}: {title}": test for name, table in DOCUMENTS.items() for title, test in table.items()}


def names_of_tests_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


@pytest.mark.parametrize("snippet", COUNTERPARTS)
def test_a_snippet_has_a_counterpart_that_runs(snippet: str) -> None:
    path, _, name = COUNTERPARTS[snippet].partition("::")
    assert name in names_of_tests_in(TESTS / path)


def test_the_tests_beside_this_one_are_all_counterparts() -> None:
    here = {
        f"{HERE}{path.name}::{name}"
        for path in (TESTS / HERE).glob("test_*.py")
        if path != Path(__file__).resolve()
        for name in names_of_tests_in(path)
    }
    assert here - set(COUNTERPARTS.values()) - {path_of(test) for test in COVERED} == set()


def path_of(test: str) -> str:
    module, _, name = test.partition("::")
    folder, _, file = module.rpartition("/")
    return f"{folder or 'seeds'}/test_{file}.py::{name}"


def test_each_statement_has_a_test_that_runs_and_is_listed_once() -> None:
    for test in COVERED:
        path, _, name = path_of(test).partition("::")
        assert name in names_of_tests_in(TESTS / path), test
    lines = [line for listed in COVERED.values() for line in listed.split()]
    assert sorted(lines) == sorted(set(lines))
    assert {line[:3] for line in lines} == {"000", "001", "002", "003", "004"}


def test_what_holds_instead_of_a_statement_is_tested_where_its_line_is_covered() -> None:
    for statement, (_, test) in DIFFERENT.items():
        line, _, _ = statement.partition(" ")
        assert line in COVERED[test].split(), statement
