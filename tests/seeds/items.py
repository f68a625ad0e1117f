"""Statements of the five documents by file and line, and the test of each; see `test_langchain4j_tools`."""

from __future__ import annotations

COVERED = {
    "low_level::test_without_tools_the_model_guesses": "000:17 003:8",
    "low_level::test_with_tools_two_requests_give_the_answer": "000:30 000:41 000:58 003:26 003:38",
    "low_level::test_a_specification_is_made_by_hand": (
        "000:107 000:109 000:110 000:111 000:117 000:124 003:101 003:81 003:94"
    ),
    "low_level::test_specifications_are_made_of_a_class_an_object_and_a_function": "000:133 003:109",
    "low_level::test_the_models_requests_are_read_from_its_message": (
        "000:153 000:155 000:158 000:159 003:120 003:129 003:137"
    ),
    "low_level::test_results_written_by_hand_are_sent_with_all_previous_messages": "000:157 000:163 003:141 003:147",
    "low_level::test_several_tools_may_be_wanted_at_once": "000:86 003:135 003:63",
    "by_program::test_specifications_are_read_from_a_class_with_methods": "000:131 000:132 003:107 003:108",
    "by_program::test_a_program_without_a_loop_asks_the_model_and_runs_the_tool": "000:105 000:161 003:145 003:74",
    "by_program::test_a_mapping_of_specifications_to_functions_is_a_source_of_tools": (
        "000:345 000:354 002:100 002:1484 002:1489 002:262 002:268 002:971 003:463 003:472"
    ),
    "by_program::test_a_function_is_a_provider_and_returns_what_tools_takes": (
        "000:363 000:380 002:243 002:281 002:300 003:481 003:501"
    ),
    "by_program::test_callbacks_by_name_see_one_immutable_mapping_and_the_models_text": (
        "002:1311 002:1315 002:377 002:382 002:406"
    ),
    "by_program::test_an_executor_runs_tools_concurrently": "002:1341 003:411 003:413",
    "by_program::test_a_fallback_tool_answers_for_a_failing_one_and_text_in_the_end": "002:956 002:976 002:980",
    "by_program::test_a_rate_limit_waits_for_a_second": "002:692",
    "by_program::test_the_order_over_several_tools_is_one_list": "002:752 002:778",
    "streaming::test_a_streamed_call_comes_in_pieces_and_then_whole": "003:170 003:174 003:186 003:190 003:200",
    "streaming::test_the_index_tells_the_calls_of_a_stream_apart": "003:196",
    "streaming::test_a_token_stream_calls_back_with_the_same_pieces_and_runs_the_tool": "003:166 003:178",
    "streaming::test_executed_tools_are_told_while_streaming": "000:311 000:322 000:323 003:435 003:442 003:444",
    "streaming::test_an_error_of_the_model_goes_to_on_error": "000:324 003:182 003:445",
    "streaming::test_synchronous_code_takes_the_events_too": "000:321 003:443",
    "defining_tools::test_a_search_and_a_page_are_tools": "000:178 000:183 003:213 003:217",
    "defining_tools::test_methods_of_any_kind_and_visibility_are_tools": "000:193 000:194 003:225 003:226",
    "defining_tools::test_parameters_may_have_many_types": (
        "000:200 000:201 000:202 000:203 000:204 000:205 002:1193 003:230 003:234 003:237 003:238 003:240 003:242"
    ),
    "defining_tools::test_a_tool_may_take_nothing": "000:207 002:133 003:247",
    "defining_tools::test_every_parameter_is_required_unless_it_says_otherwise": ("000:272 003:249 003:251 003:381"),
    "defining_tools::test_a_field_of_a_nested_object_may_be_optional": "000:209 003:257 003:258",
    "defining_tools::test_a_parameter_may_be_recursive": "000:211 003:265",
    "defining_tools::test_classes_and_fields_are_described": "000:276 003:385",
    "defining_tools::test_nothing_returned_is_success": "000:215 002:387 003:273 004:5",
    "defining_tools::test_text_is_returned_as_it_is": "000:217 003:276",
    "defining_tools::test_anything_else_is_returned_as_json": "000:219 003:278",
    "defining_tools::test_a_name_and_a_description_are_optional": (
        "000:260 000:261 002:39 002:45 003:370 003:371 004:18 004:26"
    ),
    "defining_tools::test_metadata_is_kept_with_the_specification": "004:12 004:41 004:43 004:45",
    "defining_tools::test_a_record_of_several_fields_is_one_parameter": "002:1252 002:1256",
    "defining_tools::test_an_omitted_parameter_has_its_default_and_a_required_one_is_an_error": "002:59",
    "defining_tools::test_two_tools_of_one_name_are_refused_unless_one_is_renamed": "002:283 002:61",
    "defining_tools::test_an_empty_text_is_a_result": "002:389",
    "ai_services::test_the_math_genius_asks_the_model_twice_and_runs_the_tool_in_between": (
        "000:174 000:227 000:256 003:207 003:343 003:364"
    ),
    "ai_services::test_a_result_tells_which_tools_were_executed": (
        "000:299 000:309 002:339 002:345 002:351 002:362 003:426 003:434"
    ),
    "ai_services::test_the_memory_id_is_passed_to_tools_and_hidden_from_the_model": (
        "000:295 002:126 002:1445 002:1457 002:1462 003:399"
    ),
    "ai_services::test_a_tool_is_specified_by_program": "000:329 000:331 003:448 003:450",
    "ai_services::test_a_tool_is_provided_where_the_message_contains_booking": (
        "000:365 000:384 002:275 003:486 003:508"
    ),
    "ai_services::test_tools_are_provided_by_what_the_message_is_about": "002:1382 002:231",
    "ai_services::test_services_are_tools_of_a_router": "003:279 003:299 003:320",
    "ai_services::test_tools_of_several_classes_are_used_together": "002:1270 002:1296",
    "ai_services::test_the_number_of_round_trips_is_limited": "002:1418 002:73",
    "ai_services::test_a_tools_result_may_be_the_answer_at_once": "002:1512 004:14",
    "ai_services::test_an_immediate_tool_needs_a_method_that_can_return_its_result": "004:36",
    "ai_services::test_the_basic_usage_multiplies": "002:1216",
    "ai_services::test_the_memory_id_is_seen_by_providers_callbacks_and_handlers": (
        "002:132 002:249 002:282 002:327 002:462 003:484"
    ),
    "ai_services::test_tools_are_found_once_when_the_service_is_built": "002:65 002:66",
    "ai_services::test_a_provider_is_called_once_an_invocation_or_before_each_request": "002:276 002:287 002:288",
    "ai_services::test_a_provider_that_fails_stops_the_invocation": "002:299",
    "errors::test_the_message_of_an_exception_is_what_the_model_reads": (
        "000:223 002:151 002:188 002:210 002:368 002:374 002:407 002:77 003:338 003:340"
    ),
    "errors::test_what_is_wrong_with_arguments_is_what_the_model_reads": "002:150 002:152 002:208 002:517 002:60",
    "errors::test_an_exception_may_stop_the_invocation": "002:175 002:209 002:79",
    "errors::test_handlers_say_what_the_model_reads_of_wrong_arguments_and_of_failures": (
        "002:1359 002:1366 002:421 002:427 002:433 002:439 002:450 002:456 002:481 002:522 002:540 002:541"
    ),
    "errors::test_a_handler_may_try_again_with_a_corrected_request": "002:474",
    "errors::test_a_handler_may_stop_the_invocation": "002:487 002:524",
    "errors::test_a_handler_counts_and_stops_in_the_end": "002:918 002:927 002:944",
    "errors::test_a_tool_that_does_not_exist_is_answered_with_an_error": (
        "002:134 002:1432 002:502 002:543 003:509 003:511 003:514"
    ),
    "errors::test_a_strategy_says_what_becomes_of_a_hallucinated_tool": "002:493 002:509 002:55 003:512 003:517",
    "errors::test_a_strategy_may_fail_at_once": "002:497 002:542",
    "errors::test_a_tool_falls_back_to_another_service": "002:973",
    "errors::test_a_tool_degrades_to_what_it_remembers": "002:1050 002:1063",
    "errors::test_a_handler_that_always_tries_again_is_limited": "002:516 002:523",
    "execution::test_callbacks_are_called_before_and_after_a_tool": "002:1302 002:316 002:321 002:334 002:381 002:395",
    "execution::test_what_a_callback_raises_before_a_tool_stops_the_invocation": "002:405",
    "execution::test_several_tools_run_at_the_same_time_in_threads_of_their_own": (
        "002:122 002:128 002:140 002:48 002:512 003:416"
    ),
    "execution::test_by_default_one_tool_follows_the_other": "003:407",
    "execution::test_a_number_limits_how_many_run_at_the_same_time": "003:408",
    "execution::test_a_single_tool_runs_in_the_task_of_its_caller": "003:417",
    "execution::test_a_streamed_call_runs_before_the_response_is_whole": "003:422 003:423 003:425",
    "execution::test_tools_of_several_objects_run_at_the_same_time": "002:1331 002:605 002:623",
    "execution::test_a_duration_is_not_negative_although_the_clock_is_set_back": "002:388",
    "best_practices::test_descriptions_of_tool_and_parameters_reach_the_model": (
        "000:267 000:78 000:80 000:81 000:82 002:52 002:53 002:552 002:562"
    ),
    "best_practices::test_a_summary_is_shorter_than_everything": "002:127 002:145 002:572",
    "best_practices::test_a_tool_says_what_it_cannot_find": "002:588 002:78",
    "best_practices::test_a_tool_has_a_limit_of_time": "002:54 002:626",
    "best_practices::test_a_cache_saves_calls": "002:139 002:647",
    "best_practices::test_input_is_validated": "002:668",
    "best_practices::test_calls_are_limited_in_time": "002:685",
    "best_practices::test_access_is_controlled_by_what_the_program_knows_and_not_by_the_model": "002:700 002:709",
    "best_practices::test_a_circuit_breaker_leaves_a_failing_service_alone": "002:1022 002:990",
    "debugging::test_executions_are_logged": "002:1080 002:1093",
    "debugging::test_the_performance_of_tools_is_reported": "002:1104 002:1133 002:138 002:383",
    "debugging::test_requests_are_inspected_with_the_memory_id_and_the_type_of_each_argument": "002:1154 002:1166",
    "debugging::test_tools_for_debugging_stand_beside_the_others": "002:1179 002:1188",
    "testing_patterns::test_a_mock_answers_for_the_weather": "002:723",
    "testing_patterns::test_the_order_of_invocations_is_recorded": "002:748",
    "testing_patterns::test_a_tool_that_fails_at_first_is_recovered_from": "002:784 002:806",
    "testing_patterns::test_the_arguments_of_a_tool_are_verified": "002:818",
    "testing_patterns::test_a_workflow_uses_several_tools_local_and_imported": "002:852 003:520",
    "testing_patterns::test_concurrent_execution_is_tested_without_a_clock": "002:876 002:910",
    "models/bedrock/top_song::test_step_1_the_message_and_the_tool_definition_are_sent": (
        "001:11 001:15 001:16 001:18 001:6"
    ),
    "models/bedrock/top_song::test_step_1_the_use_of_a_tool_can_be_forced": "001:19 001:26",
    "models/bedrock/top_song::test_step_2_the_tool_request_is_read": "001:36 001:38 001:43 001:45 001:49",
    "models/bedrock/top_song::test_step_3_the_result_or_the_error_is_told": "001:50 001:57 001:61 001:62 001:64 001:68",
    "models/bedrock/top_song::test_step_4_the_answer_is_read": "001:70 001:77",
}
"""Lines by test: ``module::function`` in this folder, or ``folder/module::function``."""

DIFFERENT = {
    "000:209 fields of objects cannot be optional": (
        "they can, as the newer edition says",
        "defining_tools::test_a_field_of_a_nested_object_may_be_optional",
    ),
    "000:211 recursion for OpenAI alone": (
        "recursive types are sent to every provider that takes `$ref`",
        "defining_tools::test_a_parameter_may_be_recursive",
    ),
    "002:59 a tool receives null for an omitted parameter": (
        "its default applies; a required one is an error",
        "defining_tools::test_an_omitted_parameter_has_its_default_and_a_required_one_is_an_error",
    ),
    "002:134 an executor raises for a tool that does not exist": (
        "the model reads the nearest names; a handler may raise",
        "errors::test_a_tool_that_does_not_exist_is_answered_with_an_error",
    ),
    "002:210 without options, errors are logged only": (
        "the model reads the error in any case",
        "errors::test_the_message_of_an_exception_is_what_the_model_reads",
    ),
    "002:283 two tools of one name are undefined behaviour": (
        "they are refused, and both sources are named",
        "defining_tools::test_two_tools_of_one_name_are_refused_unless_one_is_renamed",
    ),
    "002:287 a provider is called before each request": (
        "once an invocation, or before each request if it is dynamic",
        "ai_services::test_a_provider_is_called_once_an_invocation_or_before_each_request",
    ),
    "002:345 a result is text": (
        "it has content blocks and data; `text` is their text",
        "ai_services::test_a_result_tells_which_tools_were_executed",
    ),
    "002:387 a tool that returns null has a null result": (
        "the model reads Success",
        "defining_tools::test_nothing_returned_is_success",
    ),
    "002:388 a duration may be negative": (
        "it is measured by a monotonic clock",
        "execution::test_a_duration_is_not_negative_although_the_clock_is_set_back",
    ),
    "002:487 a handler returns stop()": (
        "it raises, and the exception reaches the caller",
        "errors::test_a_handler_may_stop_the_invocation",
    ),
    "002:493 strategies are the items of an enum": (
        "a strategy is a function of the error, the request and the context",
        "errors::test_a_strategy_says_what_becomes_of_a_hallucinated_tool",
    ),
    "002:523 no limit of retries": (
        "a policy has max_attempts",
        "errors::test_a_handler_that_always_tries_again_is_limited",
    ),
    "002:1512 immediate tools are named beside the tools": (
        "the return behaviour is the tool's own",
        "ai_services::test_a_tools_result_may_be_the_answer_at_once",
    ),
    "003:417 a single tool that blocks runs in the caller's thread": (
        "a coroutine function runs in the caller's task; others in a thread, so that the event loop goes on",
        "execution::test_a_single_tool_runs_in_the_task_of_its_caller",
    ),
    "003:511 a hallucinated tool raises by default": (
        "the model reads the nearest names; a handler may raise",
        "errors::test_a_tool_that_does_not_exist_is_answered_with_an_error",
    ),
    "004:36 an immediate tool fails when it is called for another return type": (
        "the service is refused when it is built",
        "ai_services::test_an_immediate_tool_needs_a_method_that_can_return_its_result",
    ),
    "004:43 metadata is a JSON string": (
        "it is a mapping, and a string is refused",
        "defining_tools::test_metadata_is_kept_with_the_specification",
    ),
}
"""Statements that deliberately do not hold: the behaviour instead, and the test of it."""
