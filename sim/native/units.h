/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of src/bpf by name, one or more lines for each file. Most are static; the unit
 * tests (sim/tests/units) call them one by one. build.rs makes Rust bindings from the types.
 */
#pragma once

/* clang-format off */
#define UNITS(X) \
	X(cpu_layout) X(llc_layout) X(other_llc) X(slot_cpu) X(cpu_ctx) X(llc_published) X(llc_ctx) \
	X(this_cpu_ctx) X(share_llc) X(is_usable) X(check_unusable) \
	X(stat_inc) \
	X(task_ctx) X(is_migratable) X(is_critical) X(is_idle_task) X(may_use) X(any_allowed) \
	X(map_test) X(map_set) X(map_test_and_clear) X(map_walk_from) X(map_walk_next) \
	X(map_walked) X(map_any) \
	X(decay_load) X(pelt_accumulate) X(pelt_update) X(util_avg_at) \
	X(leave_autogroup) X(check_groups) \
	X(group) X(group_add) X(group_enter) X(group_leave) X(flush_cpu) X(flush) X(group_share) \
	X(update_share) X(task_weight) X(is_idle_policy) X(free_group) \
	X(bw_refill) X(take_slice) X(charge_groups) X(next_refill) X(cpu_budget) \
	X(peak) X(to_vtime) X(burst) X(is_short) X(begin_burst) X(end_burst) X(set_deadline) X(charge) X(advance_to) \
	X(publish_current) X(begin_run) X(yield_turn) X(rebase) X(place) \
	X(queue_add) X(local_add) X(queue_del) X(cpu_load) X(wait_time) X(first_queued) X(pinned_queue) \
	X(preempts) X(runs_before) X(is_about_to_sleep) X(run_at_once) X(arrival_flags) \
	X(set_tickless) X(advance_tickless) \
	X(fits_capacity) X(fits_cpu) X(fits_all) X(is_weak) X(is_big) \
	X(read_uclamp) X(update_task_util) X(spare_capacity) X(decay_task_util) X(util_starts) X(util_runs) \
	X(util_stops) \
	X(update_cpuperf) X(decay_cpuperf) \
	X(fallback_cpu) X(weak_wait) \
	X(count_wake_case) \
	X(nr_scan_of) X(scan_budget) X(sum_util) X(estimate_nr_scan) \
	X(set_idle_core_hint) X(mark_idle) X(mark_busy) X(claim_idle) X(any_idle) \
	X(begin_search) X(scan_window) X(scan_llc) X(scan_beyond) X(find_idle) \
	X(affine_target) \
	X(hands_off) X(judge_handoff) \
	X(read_prolog_depth) X(delay_return) X(back_off) X(wants_preferred_node) X(update_preferred_node) \
	X(node_any_idle) \
	X(find_stronger) X(runs_small) \
	X(nr_idle) X(find_core) X(find_room) \
	X(check_move) X(send_away) \
	X(mark_overloaded) X(clear_empty_queues) X(clear_queues) X(clear_overload_of) X(take_queued) \
	X(hot_remaining) X(kick_idle_for) X(kick_idle_for_queued) \
	X(pull) X(steal) X(work_in_reach) \
	X(account_idle) X(next_overloaded) X(balance_victim) X(trim_drift) X(balance) X(set_due) \
	X(requeue_late) \
	X(count_latency) \
	X(throttled_queue) X(is_throttled) X(unthrottle)
/* clang-format on */

#define DECLARE_UNIT(name) typeof(name) *name;
#define DEFINE_UNIT(name)  .name = name,

struct units {
	UNITS(DECLARE_UNIT)
};

const struct units units = {UNITS(DEFINE_UNIT)};
