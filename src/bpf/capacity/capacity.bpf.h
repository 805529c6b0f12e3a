/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs of different capacity (Morten Rasmussen's asymmetric capacity): which CPU is strong enough
 * for a task.
 *
 *	                    CPU of capacity 430   CPU of capacity 1024
 *	task of util 200    fits                  fits
 *	task of util 350    does not fit          fits                   350 * 1280 > 430 * 1024
 *	task of util 900    does not fit          fits, as the strongest
 *
 * A task is *big* if it does not fit the weakest CPUs. A CPU is *weak* if the strongest exceeds it
 * by more than 5 %. Capacities are those of the present frequency limits; the loader updates them.
 * If all CPUs are of one kind, machine.asym is false, and the verifier removes this code.
 */
#pragma once

enum { FITS_MARGIN = 1280 }; /* of 1024: a task that fits leaves a fifth of its CPU unused */

struct capacities capacities;
u32 kernel_capacities[MAX_CPUS]; /* written by read_capacities() */

static bool is_asym(void)
{
	return machine.asym;
}

static u32 capacity_of(s32 cpu)
{
	return READ_ONCE(capacities.of[cpu & (MAX_CPUS - 1)]);
}

static bool fits_capacity(u64 util, u64 capacity)
{
	return util * FITS_MARGIN < capacity * CAPACITY_SCALE;
}

/* Return true if @capacity exceeds @other by more than 5 %, as the kernel's capacity_greater(). */
static bool is_stronger(u64 capacity, u64 other)
{
	return capacity * CAPACITY_SCALE > other * STRONGER;
}

static bool is_weak(s32 cpu)
{
	return is_asym() && is_stronger(READ_ONCE(capacities.max), capacity_of(cpu));
}

/* Return true if the task fits @cpu. The strongest CPUs fit any task. */
static bool fits_cpu(u32 util, s32 cpu)
{
	return fits_capacity(util, capacity_of(cpu)) || !is_weak(cpu);
}

static bool fits_all(u32 util)
{
	return fits_capacity(util, READ_ONCE(capacities.min));
}

static bool is_big(const struct task_ctx *tctx)
{
	return is_asym() && !fits_all(tctx->task_util);
}
