"""What the old operators did wrong, as far as it is known, and the tests that show that ours does not.

`trainer#` is the issue tracker of kubeflow/trainer, where those of tf-operator and training-operator are now. What has
no number was found by reading their code. Left out is what is about MPI alone, and the sharing of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

ENDS = "tests/defects/test_ends.py::"
LIMITS = "tests/defects/test_limits.py::"
CHILDREN = "tests/defects/test_children.py::"
TOGETHER = "tests/plan/test_gang_restart.py::"
REFUSED = "tests/plan/test_refused_edits.py::"
RUNNING = "tests/plan/test_running.py::"
SUSPEND = "tests/plan/test_finish_and_suspend.py::"
OPERATOR = "tests/operator/test_operator.py::"
TF_CONFIG = "tests/frameworks/test_tf_config.py::"


@dataclass(frozen=True, slots=True)
class Defect:
    """`tests` are names such as `tests/plan/test_x.py::test_y`."""

    source: str
    what: str
    tests: tuple[str, ...]


DEFECTS = (
    # What is accepted.
    Defect(
        "schema of v1alpha2",
        "minima for one spelling",
        (CHILDREN + "test_a_type_in_other_capitals_is_checked_like_any_other",),
    ),
    Defect("types", "two spellings of one type", (CHILDREN + "test_one_type_in_two_spellings_is_a_problem",)),
    Defect(
        "trainer#1241",
        "flat policies ignored in v1",
        (CHILDREN + "test_policies_that_stand_in_spec_itself_hold_in_v1",),
    ),
    Defect(
        "trainer#1135",
        "an Evaluator without replicas crashed it",
        (CHILDREN + "test_an_evaluator_whose_replicas_are_not_written_stops_nobody",),
    ),
    Defect(
        "trainer#706, #813",
        "a malformed job crashed or blocked the operator",
        (
            "tests/frameworks/test_reading.py::test_no_manifest_whatsoever_raises",
            OPERATOR + "test_a_job_that_is_not_valid_fails_with_its_problems_and_stops_nobody",
        ),
    ),
    Defect(
        "trainer#1101, #1745",
        "names too long, digits first",
        (CHILDREN + "test_a_name_that_no_service_can_have_is_told_at_once",),
    ),
    Defect(
        "restartPolicy of the template",
        "overwritten",
        ("tests/plan/test_running.py::test_doubts_about_the_manifest_are_told_once_as_events",),
    ),
    Defect(
        "managedBy", "looked at by two", (CHILDREN + "test_a_job_that_another_controller_manages_is_not_looked_at",)
    ),
    # Pods and services.
    Defect(
        "names",
        "pods of a namesake",
        (CHILDREN + "test_a_job_that_is_made_again_waits_until_the_pods_of_its_namesake_are_gone",),
    ),
    Defect(
        "names",
        "used again while the old pod ends",
        (RUNNING + "test_a_name_is_not_used_again_while_its_old_pod_is_there",),
    ),
    Defect(
        "labels",
        "an index that can't be parsed",
        (CHILDREN + "test_a_pod_whose_labels_somebody_has_edited_is_neither_lost_nor_made_twice",),
    ),
    Defect(
        "labels of the template",
        "dropped",
        ("tests/plan/test_desired.py::test_the_template_s_labels_and_annotations_are_kept_and_ours_win",),
    ),
    Defect(
        "trainer#1129, #1180",
        "the SDK found no logs without the master's label",
        ("tests/frameworks/test_names_and_labels.py::test_the_master_is_the_chief_or_where_there_is_none_worker_0",),
    ),
    Defect(
        "expectations",
        "pods made twice",
        (
            CHILDREN + "test_what_was_made_just_before_a_crash_is_not_made_again",
            "tests/plan/test_properties.py::test_no_pod_twice_none_lost_every_end_counted_once",
            OPERATOR + "test_two_operators_at_once_make_no_pod_twice",
        ),
    ),
    Defect(
        "services", "no name before readiness", (CHILDREN + "test_a_server_that_is_not_ready_is_found_by_its_name",)
    ),
    Defect(
        "trainer#1191", "services leaked", (LIMITS + "test_no_service_is_left_behind_whatever_becomes_of_the_pods",)
    ),
    Defect(
        "trainer#997",
        "deleted again and again",
        (LIMITS + "test_what_was_deleted_is_not_deleted_again", LIMITS + "test_a_suspension_deletes_once"),
    ),
    Defect(
        "trainer#1797",
        "the host's network",
        (
            "tests/operator/test_together.py::test_two_replicas_on_the_host_s_network_get_nodes_of_their_own_or_wait",
            LIMITS + "test_two_replicas_that_want_one_port_of_a_node_are_told_of_and_do_not_try_for_ever",
            LIMITS + "test_replicas_on_the_host_s_network_find_each_other_by_name",
        ),
    ),
    Defect(
        "trainer#16, #207, #329",
        "the standard parameter server lost, its image fixed",
        ("tests/plan/test_v1alpha1.py::test_the_server_that_was_left_to_us_has_its_script_before_it_starts",),
    ),
    Defect(
        "trainer#447",
        "TensorBoard lost",
        ("tests/e2e/test_tensorboard.py::test_it_serves_what_the_job_has_written_until_the_job_is_deleted",),
    ),
    # TF_CONFIG.
    Defect(
        "trainer#1763",
        "a sparse chief found no server",
        (TF_CONFIG + "test_a_sparse_chief_and_evaluator_find_the_servers_and_themselves",),
    ),
    Defect(
        "sparse, without PS",
        "null for a list",
        (TF_CONFIG + "test_a_sparse_worker_without_servers_gets_an_empty_list_not_null",),
    ),
    Defect(
        "trainer#972, #1078",
        "a local job was made a distributed one",
        (TF_CONFIG + "test_g3_a_job_of_one_replica_is_told_nothing",),
    ),
    Defect(
        "trainer#1139",
        "the evaluator in the cluster",
        (TF_CONFIG + "test_the_nested_generation_lists_the_evaluator_and_the_flat_one_does_not",),
    ),
    Defect(
        "trainer#1141, #2070",
        "running replicas do not learn of new ones",
        (
            TOGETHER + "test_a_raised_wish_is_not_followed_and_says_why_and_what_to_do",
            TOGETHER + "test_with_leave_to_restart_a_job_grows_when_the_scheduler_has_found_room",
            "tests/plan/test_properties_together.py::test_nobody_runs_who_was_not_told_of_all_that_run",
        ),
    ),
    # Size.
    Defect(
        "replicas down, up to v1 flat", "they stayed", (LIMITS + "test_replicas_that_are_not_wished_for_any_more_go",)
    ),
    Defect("trainer#2070", "scaling in failed the job", (ENDS + "test_a_worker_that_is_scaled_away_fails_no_job",)),
    Defect(
        "trainer#1220, #1231",
        "no scale subresource",
        (
            "tests/real/test_generations.py::test_kubectl_scales_a_job_in_every_version_and_the_scale_says_what_an_autoscaler_reads",
        ),
    ),
    Defect("replicas down", "the decider went", (LIMITS + "test_a_job_that_shrinks_keeps_who_decides_it",)),
    Defect("status", "a pod beyond the size counted", (ENDS + "test_a_pod_beyond_the_size_is_not_counted",)),
    # Edits.
    Defect("template", "edits", (LIMITS + "test_a_new_template_makes_no_pod_anew_and_the_next_one_is_made_by_it",)),
    Defect("restartPolicy", "edits", (LIMITS + "test_a_restart_policy_that_is_edited_counts_from_then_on",)),
    Defect(
        "an edit that makes no sense",
        "failed or froze the job",
        (REFUSED + "test_a_job_whose_edit_makes_no_sense_ends_all_the_same", REFUSED + "test_its_limits_hold"),
    ),
    # Restarts.
    Defect(
        "trainer#1560",
        "deleting a pod failed the job",
        (ENDS + "test_a_pod_that_somebody_deletes_fails_no_job_under_any_policy",),
    ),
    Defect(
        "trainer#720, #999",
        "lost, evicted, preempted",
        (
            ENDS + "test_what_happens_to_a_node_fails_no_job_and_uses_up_no_limit",
            ENDS + "test_a_preempted_pod_that_kubernetes_has_marked_is_no_failure",
        ),
    ),
    Defect("trainer#1749, #2200", "which code was it", (ENDS + "test_the_exit_code_stands_on_the_job",)),
    Defect(
        "exit codes", "another table each release", (ENDS + "test_each_generation_keeps_its_own_table_of_exit_codes",)
    ),
    Defect("trainer#518", "codes of the user's own", (TOGETHER + "test_exit_codes_of_the_user_s_own_are_tried_again",)),
    Defect("sidecars", "their code counted", (CHILDREN + "test_a_sidecar_that_fails_fails_nobody",)),
    Defect(
        "trainer#1637",
        "Istio: no pod ever completed",
        (CHILDREN + "test_a_sidecar_that_never_ends_keeps_no_job_from_ending",),
    ),
    Defect(
        "trainer#1589, #2342",
        "backoffLimit never reached",
        (LIMITS + "test_a_limit_of_more_than_no_restart_is_a_limit_too",),
    ),
    Defect(
        "trainer#550",
        "restarts forgotten with their pod",
        (
            LIMITS + "test_a_new_pod_does_not_make_the_restarts_of_the_old_one_forgotten",
            LIMITS + "test_the_restarts_of_each_replica_are_known",
        ),
    ),
    Defect("common#167", "no back-off", (LIMITS + "test_restarts_come_later_and_later_not_at_once_for_ever",)),
    Defect(
        "synchronous strategies",
        "one new replica of many that wait for each other",
        (
            TOGETHER + "test_when_one_is_replaced_all_are_and_that_is_one_restart",
            "tests/operator/test_together.py::test_an_operator_that_dies_at_any_moment_leaves_no_half_of_a_gang",
        ),
    ),
    # Ends.
    Defect(
        "status, order of types",
        "Succeeded, then Failed",
        (ENDS + "test_a_job_whose_worker_0_has_succeeded_is_not_failed_by_another_that_fell_at_the_same_time",),
    ),
    Defect(
        "status, order of types", "an earlier type's failure", (ENDS + "test_the_order_of_the_types_decides_nothing",)
    ),
    Defect("replicas: 0", "success at once", (ENDS + "test_a_job_without_a_single_replica_does_not_succeed_at_once",)),
    Defect(
        "PS or Evaluator alone",
        "never ended",
        (ENDS + "test_a_job_of_which_nobody_decides_the_end_is_refused_and_does_not_run_for_ever",),
    ),
    Defect(
        "Restarting",
        "hid another's failure",
        (ENDS + "test_one_replica_that_is_started_again_hides_no_other_s_failure",),
    ),
    Defect("Restarting", "no completionTime", (ENDS + "test_every_end_has_its_time_whoever_is_restarting_meanwhile",)),
    Defect(
        "trainer#889", "counts emptied or made up at the end", (ENDS + "test_what_is_counted_at_the_end_is_what_was",)
    ),
    Defect(
        "trainer#634, #751, #1188",
        "who decides",
        (
            ENDS + "test_a_job_with_a_chief_is_not_done_because_its_workers_are",
            ENDS + "test_an_evaluator_that_has_not_finished_keeps_no_job_from_succeeding",
            RUNNING + "test_g13_with_all_workers_wanted_one_alone_does_not_decide",
        ),
    ),
    Defect(
        "v1alpha1",
        "the last pod listed was taken for the newest",
        (RUNNING + "test_a_name_is_not_used_again_while_its_old_pod_is_there",),
    ),
    Defect(
        "trainer#156, #1186, #2453, #2454",
        "collected pods were run again",
        (
            ENDS + "test_a_finished_replica_whose_pod_is_collected_is_not_run_again",
            ENDS + "test_the_pods_of_a_finished_job_are_not_made_again_when_they_are_collected",
        ),
    ),
    # Limits, timers, clean-up.
    Defect(
        "trainer#3358",
        "a deadline that nobody looked at",
        (
            LIMITS + "test_a_deadline_is_met_though_nothing_else_happens",
            LIMITS + "test_a_deadline_is_met_by_an_operator_that_was_not_there_when_it_passed",
        ),
    ),
    Defect("trainer#1533, #2899", "a TTL that did not fire", (LIMITS + "test_a_time_to_live_fires_by_itself",)),
    Defect(
        "completionTime nil",
        "the TTL failed for ever",
        (LIMITS + "test_a_time_to_live_fires_where_the_time_of_the_end_was_never_written",),
    ),
    Defect(
        "trainer#128, #536, #661, #774, #877, #1059",
        "all pods kept, or none",
        (
            SUSPEND + "test_g23_the_clean_up_policy_says_which_pods_go_and_services_always_do",
            CHILDREN + "test_the_pod_that_failed_stays_for_its_logs_while_those_that_run_go",
        ),
    ),
    # Suspension.
    Defect(
        "trainer#1519, kueue#297",
        "suspension",
        (
            SUSPEND + "test_g22_a_suspended_job_gives_everything_back_in_one_write",
            SUSPEND + "test_a_resumed_job_queues_anew_and_its_time_to_run_begins_anew",
            LIMITS + "test_what_kueue_writes_into_a_suspended_job_holds_when_it_is_resumed",
            LIMITS + "test_a_suspended_job_is_not_deleted_by_a_time_to_live_and_runs_again",
        ),
    ),
    # What is told.
    Defect("events", "the same again at each sync", (ENDS + "test_nothing_is_told_again_at_each_look",)),
    Defect("TFJobFailed", "Normal, and twice", (ENDS + "test_a_failure_is_told_once_and_as_a_warning",)),
    Defect(
        "lastReconcileTime",
        "a write at each look",
        (LIMITS + "test_a_running_job_writes_nothing_while_nothing_happens",),
    ),
    Defect(
        "trainer#1426", "churn while a gang waits", (LIMITS + "test_a_queued_job_writes_nothing_while_nothing_happens",)
    ),
    Defect(
        "trainer#1131, #1136, #1282",
        "why a pod does not start",
        (
            "tests/plan/test_creation_failures.py::test_the_words_of_whoever_refuses_stand_in_the_condition_and_in_one_event",
            "tests/real/test_reasons.py::test_an_image_that_is_not_there_stands_in_the_columns_and_frees_the_places_for_those_behind",
        ),
    ),
    Defect(
        "metrics: trainer#988, #1407, #2408",
        "counted anew after a restart; none of phases",
        (
            "tests/operator/test_registry.py::test_a_job_is_counted_in_every_phase_that_it_goes_through",
            "tests/operator/test_registry.py::test_a_standby_counts_no_jobs_and_the_leader_counts_them_once",
        ),
    ),
    # Installation, versions, scheduling.
    Defect(
        "trainer#759, #1522",
        "all namespaces or one",
        ("tests/operator/test_left.py::test_of_some_namespaces_the_jobs_of_others_are_left_alone",),
    ),
    Defect(
        "trainer#697, #967",
        "moving between versions",
        ("tests/conversion/test_there_and_back.py::test_a_job_that_is_converted_and_converted_back_is_the_same",),
    ),
    Defect(
        "trainer#349, #916, #1048",
        "half a gang",
        (OPERATOR + "test_a_gang_that_does_not_fit_waits_with_a_reason_and_starts_whole_when_there_is_room",),
    ),
    Defect(
        "trainer#829, #1706",
        "thousands of jobs",
        (
            OPERATOR + "test_no_node_is_oversold_by_many_jobs_that_come_at_once",
            "tests/operator/test_processes.py::test_a_flood_of_jobs_does_not_hold_up_the_renewals",
        ),
    ),
)
