"""Every code block of the platform's documents about tools, and every file of its data about them, is the business of
a test by name; and each rule that they show is held by a test of its own elsewhere, with a fixture that is ours.

A block that is added to the documents, or a test that is renamed, fails here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from platform_documents import blocks

TESTS = Path(__file__).parents[1]
HERE = "compat"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "000 §4.4.2 (1)": ("test_the_inventory_of_the_profile_is_what_its_agent_is_told_of_and_may_call",),
    "000 §4.4.3 (1)": (
        "test_the_schema_of_summarize_text_is_exactly_the_one_shown",
        "test_a_call_of_summarize_text_runs_it_and_gives_its_one_output_bare",
    ),
    "000 §4.4.3 (2)": ("test_the_schema_of_summarize_text_is_exactly_the_one_shown",),
    "000 §5.2.1 (1)": (
        "test_the_single_call_of_5_2_1",
        "test_the_call_of_5_2_1_reaches_its_tool_with_both_parameters",
    ),
    "000 §5.2.2 (1)": (
        "test_the_chain_of_5_2_2",
        "test_the_chain_of_5_2_2_writes_the_file_and_adds_to_it",
    ),
    "000 §6.3 (1)": (
        "test_every_published_tool_definition_is_read_without_a_problem",
        "test_the_tool_of_the_case_study_is_listed_and_says_what_it_needs",
    ),
    "000 §10.2.1 (1)": ("test_the_folder_of_10_2_1_holds_the_tool_of_10_2_2",),
    "000 §10.2.2 (1)": ("test_the_folder_of_10_2_1_holds_the_tool_of_10_2_2",),
    "000 §11.2 (1)": (
        "test_the_models_answer_of_11_2",
        "test_the_answer_of_11_2_edits_the_file",
        "test_the_reference_of_11_2_is_what_is_written_about_such_a_tool",
        "test_the_tool_of_11_2_is_there_with_those_parameters",
    ),
    "000 §16.1 (1)": ("test_the_tool_of_the_case_study_runs_its_script_where_there_is_a_service",),
    "000 §16.2 (1)": ("test_the_tool_of_the_case_study_runs_its_script_where_there_is_a_service",),
    "000 §16.2 (2)": ("test_the_tool_of_the_case_study_runs_its_script_where_there_is_a_service",),
    "000 §18.1 (1)": ("test_the_plugin_of_18_has_its_tool_where_its_manifest_names_the_folder",),
    "000 §18.2 (1)": ("test_the_plugin_of_18_has_its_tool_where_its_manifest_names_the_folder",),
    "000 §18.2 (2)": ("test_the_plugin_of_18_has_its_tool_where_its_manifest_names_the_folder",),
    "002 §2.2 (1)": ("test_the_inventory_of_the_profile_is_what_its_agent_is_told_of_and_may_call",),
    "002 §2.3.1 (1)": (
        "test_the_schema_of_summarize_text_is_exactly_the_one_shown",
        "test_a_call_of_summarize_text_runs_it_and_gives_its_one_output_bare",
    ),
    "002 §2.3.1 (2)": ("test_the_schema_of_summarize_text_is_exactly_the_one_shown",),
    "002 §2.4.1 (1)": ("test_the_flow_of_2_4_ends_in_an_answer_to_who_called",),
    "003 §2.1.3 (1)": ("test_the_result_and_the_parameters_of_2_1_3_are_those_of_the_service_here",),
    "003 §2.2.2 (1)": ("test_the_template_of_2_2_2_is_read_key_by_key",),
    "003 §2.2.3 (1)": (
        "test_the_python_tool_of_2_2_3_is_listed_and_can_be_called_where_there_is_a_service",
        "test_the_examples_of_the_python_tool_give_what_they_say",
    ),
    "003 §2.2.3 (2)": ("test_the_other_handler_of_2_2_3_makes_a_tool_that_asks_for_the_language",),
    "003 §2.3.3 (1)": (
        "test_the_loader_of_2_3_3_reads_the_good_files_and_names_the_others",
        "test_two_tools_of_one_id_are_a_conflict_where_2_3_3_would_take_the_last",
    ),
    "003 §3.1 (1)": ("test_the_action_of_3_1_is_read_and_its_texts_become_what_the_tool_takes",),
    "003 §3.5 (1)": ("test_the_flow_of_3_5_answers_wrong_inputs_and_unknown_tools_alike",),
    # What stands in sentences.
    "000 §7.2": ("test_the_mark_of_7_2_becomes_the_documentation_of_the_agents_tools",),
    "000 §7.3": ("test_what_a_run_gives_is_looked_through_for_calls_as_7_3_says",),
    "000 §11.1": ("test_the_tools_are_listed_where_11_1_says",),
    "002 §4": ("test_a_summary_that_fails_is_a_structured_error_as_4_of_002_asks",),
    "003 §3.4": (
        "test_the_success_of_3_4_is_told_in_its_words",
        "test_the_failed_script_of_3_4_is_told_with_type_message_and_details",
        "test_the_wrong_parameter_of_3_4_is_told_with_its_name_and_type",
    ),
    # The data files, each in the test that reads it.
    "tam TAM_tools.md__L23.txt": (
        "test_a_text_about_the_protocol_calls_nothing_and_is_returned_whole",
        "test_texts_about_the_protocol_ask_for_nothing",
    ),
    "tam TAM_tools.md__L93.txt": (
        "test_a_complete_example_with_the_other_delimiters",
        "test_the_edit_with_the_other_delimiters_is_made_by_a_tool_of_that_name",
    ),
    "tam TAM_tools.md__L110.txt": (
        "test_a_complete_example_with_the_other_delimiters",
        "test_the_options_of_the_report_example",
        "test_the_report_of_l110_goes_on_without_its_cover_and_fills_in_its_variables",
    ),
    "tam TAM_tools.md__L147.txt": (
        "test_a_complete_example_with_the_other_delimiters",
        "test_the_loose_spelling_of_l147_writes_its_file",
    ),
    "tam agent_direct_service_tool_invocation.md__L552.txt": (
        "test_a_text_about_the_protocol_calls_nothing_and_is_returned_whole",
        "test_texts_about_the_protocol_ask_for_nothing",
    ),
    "tam unified-plugin-and-tool-architecture.md__L170.txt": (
        "test_a_complete_example_with_the_other_delimiters",
        "test_the_same_call_with_the_other_delimiters_reaches_its_tool",
    ),
    "tam unified-plugin-and-tool-architecture.md__L184.txt": (
        "test_a_complete_example_with_the_other_delimiters",
        "test_the_same_chain_with_the_other_delimiters_does_the_same",
    ),
    "tool tool_implementation_patterns.md__L195.json": (
        "test_the_tool_of_the_case_study_is_listed_and_says_what_it_needs",
        "test_the_tool_of_the_case_study_runs_its_script_where_there_is_a_service",
    ),
    "tool unified-plugin-and-tool-architecture.md__L266.json": (
        "test_the_tool_of_the_case_study_is_listed_and_says_what_it_needs",
        "test_the_tool_of_the_case_study_runs_its_script_where_there_is_a_service",
    ),
    "workflow workflow-as-tool-design.md__L62.json": (
        "test_the_schema_of_summarize_text_is_exactly_the_one_shown",
        "test_a_call_of_summarize_text_runs_it_and_gives_its_one_output_bare",
    ),
}

ELSEWHERE = {
    "000 §6.1 (1)": "the folders of plugins",
    "000 §6.2 (1)": "a manifest",
    "000 §7.4 (1)": "a diagram of the parts, whose steps §7.1 to §7.3 tell",
    "000 §12.3 (1)": "a diagram of the parts, whose steps §12.2 tells",
    "000 §15.1.1 (1)": "types of manifests",
    "000 §15.1.2 (1)": "the platform's loader of plugins",
    "000 §15.1.3 (1)": "a route of plugins",
    "000 §15.2.1 (1)": "front end",
    "000 §15.2.2 (1)": "front end",
    "000 §15.3.1 (1)": "front end",
    "000 §17.1 (1)": "settings",
    "000 §17.2 (1)": "settings; its fence begins within a line",
}
"""Code blocks that are not about tools, and what they are about."""

RULES: list[tuple[str, str, str]] = [
    (
        "tools/test_tool_registry.py",
        "test_a_tool_of_the_workflow_kind_takes_its_parameters_from_the_interface",
        "000 §4.1.1: a workflow is a tool, its interface the parameters",
    ),
    (
        "tools/test_tool_calls.py",
        "test_a_workflow_tool_runs_the_workflow_with_the_arguments",
        "000 §4.1.1: the engine runs it with the arguments",
    ),
    (
        "tools/test_tool_registry.py",
        "test_a_node_tool_takes_its_parameters_from_the_slots",
        "000 §4.1.2: parameters come from the slots of a node",
    ),
    (
        "tools/test_tool_registry.py",
        "test_every_node_is_a_tool_that_is_found_by_its_type_and_listed_where_the_operator_says",
        "000 §4.1.2: no configuration",
    ),
    (
        "tools/test_rules_of_the_documents.py",
        "test_a_node_tool_has_the_names_types_and_descriptions_of_its_slots",
        "000 §4.1.2: the node's descriptions are the parameters'",
    ),
    (
        "tools/test_tool_calls.py",
        "test_a_service_tool_calls_the_method_and_gives_its_json",
        "000 §4.2: a service's method, without the engine",
    ),
    (
        "tools/test_rules_of_the_documents.py",
        "test_a_service_tool_without_parameters_takes_none",
        "000 §4.2: the parameters of a service tool are written by hand",
    ),
    (
        "tools/test_tool_registry.py",
        "test_a_script_tool_says_which_service_it_needs",
        "000 §4.3: a script waits for its service",
    ),
    (
        "tools/test_tool_registry.py",
        "test_a_workflow_with_an_interface_is_a_tool",
        "000 §4.4.2: workflow:ID is made from a workflow",
    ),
    (
        "tools/test_reading_tool_files.py",
        "test_ids_that_mean_something_else_are_refused",
        "000 §4.4.2: the prefix is nobody else's",
    ),
    (
        "agents/test_agents_runtime.py",
        "test_a_tool_outside_of_the_inventory_is_denied_and_observed",
        "000 §4.4.2: an agent calls what its profile lists",
    ),
    ("tools/test_tool_slots.py", "test_each_data_flow_type_has_its_json_type", "000 §4.4.3: types by dataFlowType"),
    (
        "tools/test_tool_slots.py",
        "test_suggestions_are_an_enum_only_for_combo_options",
        "000 §4.4.3: an enum only for ComboOption",
    ),
    (
        "tools/test_tool_slots.py",
        "test_the_required_inputs_are_listed_and_defaults_are_left_out",
        "000 §4.4.3: required as marked, defaults left out",
    ),
    ("tools/test_tool_calls.py", "test_a_node_tool_gives_its_single_output_bare", "000 §4.4.4: one output comes bare"),
    (
        "tools/test_tool_calls.py",
        "test_a_node_tool_gives_several_outputs_as_an_object",
        "000 §4.4.4: several come as an object",
    ),
    ("tam/test_tam_text.py", "test_text_and_calls_come_in_order", "000 §5.2.1: a block among text"),
    (
        "tam/test_tam_calls.py",
        "test_steps_run_by_their_numbers_and_keep_them",
        "000 §5.2.2: steps run by their numbers",
    ),
    ("tam/test_tam_calls.py", "test_comments_are_no_part_of_a_call", "000 §5.2.2: lines with # are comments"),
    (
        "tools/test_file_operator.py",
        "test_a_chain_of_text_writes_and_prolongs_a_file",
        "000 §5.2.2: what a step writes the next one finds",
    ),
    (
        "tools/test_tool_parameters.py",
        "test_keys_of_text_match_without_case_and_separators",
        "000 §5.3: keys compare without case and underscores",
    ),
    ("tam/test_tam_calls.py", "test_the_command_key_has_many_spellings", "000 §5.3: command in many spellings"),
    (
        "tam/test_tam_calls.py",
        "test_a_value_is_taken_as_it_stands",
        "000 §5.3: all between the quotation marks is the value",
    ),
    ("tam/test_tam_writer.py", "test_what_is_written_is_read_back", "000 §5.1: no escaping"),
    (
        "tools/test_tool_registry.py",
        "test_plugins_bring_tools_by_file_and_by_hook",
        "000 §7.1: a plugin's tool files are registered",
    ),
    (
        "agents/test_agents_runtime.py",
        "test_the_prompt_holds_the_documentation_of_the_agents_tools_and_of_no_others",
        "000 §7.2: prompts get the documentation of the reader's tools",
    ),
    (
        "tools/test_runs_with_actions.py",
        "test_the_calls_in_the_outputs_of_a_run_with_actions_are_carried_out",
        "000 §7.3: calls in outputs are carried out",
    ),
    (
        "tools/test_tool_calls.py",
        "test_a_call_that_takes_a_while_is_told_when_it_begins_and_when_it_ends",
        "000 §7.3: and told as an event",
    ),
    ("tools/test_tool_calls.py", "test_an_unknown_tool_is_a_result_with_near_names", "000 §10.3: an unknown id"),
    (
        "tools/test_tool_calls.py",
        "test_wrong_arguments_are_all_listed",
        "000 §10.3: parameters are checked by their schema",
    ),
    ("tools/test_tool_web_and_commands.py", "test_tools_are_listed_and_shown", "000 §11.1: tools over HTTP"),
    (
        "tools/test_tool_documentation.py",
        "test_parameters_are_listed_with_type_need_description_and_choices",
        "000 §11.2: the layout of the documentation",
    ),
    (
        "tools/test_tool_web_and_commands.py",
        "test_action_text_is_executed_and_failed_calls_are_results",
        "000 §12.2: text is handed in and its calls made",
    ),
    (
        "tools/test_task_life.py",
        "test_a_task_is_accepted_at_once_and_its_result_can_be_waited_for",
        "000 §12.4: asynchronous calls",
    ),
    (
        "tools/test_result_cache.py",
        "test_a_result_is_given_again_for_equal_arguments_as_long_as_the_tool_says",
        "000 §12.4: results are given again",
    ),
    (
        "tools/test_authority.py",
        "test_a_role_says_what_its_principals_may_call_and_what_not",
        "000 §13: roles say who calls what",
    ),
    (
        "tools/test_audit.py",
        "test_an_acting_call_is_on_disk_before_it_is_made",
        "000 §13: every call is in the audit log",
    ),
    (
        "tools/test_tool_slots.py",
        "test_the_custom_description_stands_in_for_a_missing_one",
        "002 §2.3: the description, else the custom one",
    ),
    (
        "tools/test_rules_of_the_documents.py",
        "test_the_tool_of_a_workflow_is_named_by_its_file",
        "002 §2.2: the id, else the stem of the file",
    ),
    (
        "tools/test_tool_calls.py",
        "test_a_failing_node_is_an_execution_error_that_names_the_run",
        "002 §4: a failed run is a structured error",
    ),
    (
        "tools/test_workflow_streams.py",
        "test_a_streaming_workflow_is_read_by_a_handle",
        "002 §4: a stream by its handle",
    ),
    ("tools/test_reading_tool_files.py", "test_the_second_form_is_tool_id_and_handler", "003 §2.2.2: both forms"),
    (
        "tools/test_reading_tool_files.py",
        "test_each_type_says_what_it_needs",
        "003 §2.2.2: each type says what it needs",
    ),
    (
        "tools/test_tool_parameters.py",
        "test_a_missing_parameter_takes_its_default",
        "003 §2.2.2: a parameter's default",
    ),
    (
        "tools/test_tool_calls.py",
        "test_a_field_that_a_service_leaves_null_is_not_there_where_the_output_knows_no_null",
        "003 §2.2.2: what output does not require may be absent",
    ),
    (
        "tools/test_reading_tool_files.py",
        "test_what_a_key_may_not_say_is_told",
        "003 §2.2.2: the form of each field, securityContext among them",
    ),
    (
        "tools/test_tool_documentation.py",
        "test_examples_are_told_with_their_arguments",
        "003 §2.2.2: examples show how a tool is called",
    ),
    (
        "tools/test_reading_tool_files.py",
        "test_the_time_limit_of_the_implementation_is_that_of_the_tool_whose_own_comes_first",
        "000 §6.3: the time limit of an implementation",
    ),
    (
        "tools/test_rules_of_the_documents.py",
        "test_json_within_text_is_checked_by_the_schema_of_its_parameter",
        "003 §3.2: JSON text is read and then checked by its own schema",
    ),
    (
        "tools/test_rules_of_the_documents.py",
        "test_a_call_in_text_is_written_alike_for_every_kind_of_tool",
        "003 §4.2: tool_id may name a node, a workflow or a service",
    ),
    (
        "tools/test_tool_calls.py",
        "test_arguments_that_the_service_refuses_are_a_validation_error_and_not_tried_again",
        "003 §4.2: what a service itself says of its parameters",
    ),
    (
        "tools/test_reading_tool_files.py",
        "test_examples_that_the_tool_does_not_allow_are_warnings",
        "003 §2.2.2: examples fit the parameters",
    ),
    (
        "tools/test_tool_registry.py",
        "test_tools_are_listed_by_filters_of_which_all_must_hold",
        "003 §2.2.2: tags pick tools",
    ),
    (
        "tools/test_rules_of_the_documents.py",
        "test_what_a_tool_asks_for_is_shown_and_gives_it_nothing",
        "003 §2.2.2: what a tool declares of its security gives nothing",
    ),
    (
        "tools/test_reading_tool_files.py",
        "test_a_bad_file_does_not_keep_the_others_from_loading",
        "003 §2.3.1: a bad file is told and left out",
    ),
    (
        "tools/test_tool_registry.py",
        "test_the_first_of_two_tools_with_one_id_is_used_and_both_places_are_named",
        "003 §2.3.2: ids are unique",
    ),
    (
        "tools/test_tool_registry.py",
        "test_a_tool_file_of_the_project_appears_changes_and_goes_without_a_restart",
        "003 §2.3.2: tools change while the host runs",
    ),
    ("tam/test_action_calls.py", "test_the_first_shape_has_a_list_of_inputs", "003 §3.1: tool_id and inputs"),
    ("tam/test_action_calls.py", "test_whatever_is_written_in_cdata_comes_back", "003 §3.1: CDATA"),
    (
        "tools/test_tool_parameters.py",
        "test_text_becomes_what_the_schema_asks_for",
        "003 §3.1: JSON for what is complex",
    ),
    (
        "tools/test_tool_parameters.py",
        "test_every_problem_is_listed_with_its_parameter",
        "003 §3.2: what is wrong with each parameter",
    ),
    ("tools/test_rules_of_the_documents.py", "test_formats_are_checked", "003 §3.2: formats"),
    (
        "tools/test_rules_of_the_documents.py",
        "test_a_method_takes_its_parameters_in_either_spelling",
        "003 §3.3: parameters by the names of the method",
    ),
    (
        "tools/test_tool_calls.py",
        "test_a_result_that_is_not_what_the_tool_declares_is_an_output_error",
        "003 §3.4: results are checked",
    ),
    ("tools/test_feedback.py", "test_a_success_is_told_with_its_output", "003 §3.4: a success in its words"),
    (
        "tools/test_feedback.py",
        "test_a_failure_is_told_with_type_message_and_details",
        "003 §3.4: a failure in its words",
    ),
    (
        "tools/test_feedback.py",
        "test_what_text_asked_for_is_framed_with_its_tool",
        "003 §3.4: OBSERVATION with the tool's id",
    ),
    ("tools/test_authority.py", "test_rules_look_at_arguments", "003 §5.3: rules look at arguments"),
    (
        "tools/test_audit.py",
        "test_marked_secrets_are_hidden_in_every_entry",
        "003 §5.3: secrets are not in the log",
    ),
    (
        "tools/test_limits.py",
        "test_so_many_calls_are_admitted_in_so_many_seconds_and_then_it_is_told_when_to_come_again",
        "003 §5.3: rate limits",
    ),
    (
        "tools/test_tool_registry.py",
        "test_versions_of_a_tool_stand_side_by_side_and_a_range_picks_one",
        "003 §6.4: versions side by side",
    ),
    ("tools/test_tool_registry.py", "test_a_tool_that_depends_on_what_is_not_there_says_so", "003 §6.4: dependencies"),
    ("tools/test_task_life.py", "test_every_change_of_a_task_is_an_event", "003 §6.5: tasks"),
    ("tools/test_callbacks.py", "test_the_end_of_a_task_is_told_with_a_signature", "003 §6.5: callbacks"),
]
"""The file and the name of the test that holds a rule with a fixture of our own, and the rule."""


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file, or in all files of a folder, beneath `tests/`."""
    place = TESTS / path
    files = sorted(place.glob("test_*.py")) if place.is_dir() else [place]
    names: set[str] = set()
    for file in files:
        tree = ast.parse(file.read_text("utf-8"))
        functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        names |= {node.name for node in functions if node.name.startswith("test_")}
    return frozenset(names)


@pytest.mark.parametrize("name", ["000", "002", "003"])
def test_every_code_block_of_a_document_has_a_test_or_is_about_something_else(spec_dir: Path, name: str) -> None:
    places = {block.place for block in blocks(spec_dir, name)}
    assert len(places) == {"000": 27, "002": 4, "003": 7}[name]
    named = {place for place in (*EXAMPLES, *ELSEWHERE) if place.startswith(f"{name} §") and place.endswith(")")}
    assert places == named


def test_every_data_file_about_tools_has_a_test(spec_dir: Path) -> None:
    files = {
        f"{kind} {path.name.rpartition('_architecture_')[2]}"
        for kind in ("tam", "tool", "workflow")
        for path in (spec_dir / "data" / "comfytavern").glob(f"{kind}__*")
    }
    assert len(files) == 10
    assert files == {name for name in EXAMPLES if name.partition(" ")[0] in ("tam", "tool", "workflow")}


def test_no_block_has_a_test_and_is_about_something_else() -> None:
    assert EXAMPLES.keys() & ELSEWHERE.keys() == set()


@pytest.mark.parametrize("place", EXAMPLES)
def test_the_tests_of_an_example_are_there(place: str) -> None:
    assert set(EXAMPLES[place]) - names_in(HERE) == set()


@pytest.mark.parametrize(("path", "name", "rule"), RULES, ids=[rule for _, _, rule in RULES])
def test_a_rule_of_the_documents_is_held_by_a_test_of_our_own(path: str, name: str, rule: str) -> None:
    assert name in names_in(path), f"{rule}: {path} has no {name}"


def test_our_own_tests_of_the_rules_read_nothing_of_the_documents() -> None:
    for path in sorted({path for path, _, _ in RULES}):
        assert "spec_dir" not in (TESTS / path).read_text("utf-8"), path
