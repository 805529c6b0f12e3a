/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sparse bitmaps: one bit a CPU, SLOTS_PER_LINE bits a cache line, each LLC on lines of its own, so
 * that CPUs which write seldom share a line with many others ("a limited number of
 * significant bits per cacheline", Sistare's task stealing). Two of them: idle_map and overload_map.
 *
 * A walk visits the set bits of one LLC once, from the slot after a given one on, wrapping:
 *
 *	from slot 18:    line 1 [19..31]  line 2 [32..47]  line 0 [0..15]  line 1 [16..18]
 *	                 step 0           step 1           step 2          step 3 = nr_lines
 *
 *	struct map_walk walk = map_walk_from(llc, slot);
 *	while (map_walk_more(&walk) && can_loop)
 *		if (map_walk_next(map, &walk))
 *			... walk.slot ...
 *
 * Bounded by nr_lines + 1 steps and SLOTS_PER_LINE bits a step. One loop, not two, and steps counted with
 * bpf_arena_loop_one: so the verifier sees soon that all rounds are alike.
 */
#pragma once

/* Slots without a CPU whose core has one: such a core is whole when its CPUs are. */
const volatile u16 absent_slots[MAX_LINES];

struct map_walk {
	u32 first_line, nr_lines;
	u32 start;	  /* line to begin with, relative to first_line */
	u32 step;	  /* lines gone through: 0..nr_lines + 1, for the line of the start comes twice */
	u64 low;	  /* bits of the first line up to the starting slot: the last step's share */
	u64 bits;	  /* of the current line, set and not yet visited */
	u32 base;	  /* slot of its bit 0 */
	u32 slot;	  /* where the walk is */
	bool whole_cores; /* only the first slots of cores all of whose CPUs are set */
};

static struct map_line *map_line(struct map_line *map, u32 slot)
{
	return &map[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)];
}

static u64 map_bit(u32 slot)
{
	return 1ULL << (slot % SLOTS_PER_LINE);
}

static bool map_test(struct map_line *map, u32 slot)
{
	return READ_ONCE(map_line(map, slot)->bits) & map_bit(slot);
}

/* Full barrier, as every atomic that returns a value. */
static void map_set(struct map_line *map, u32 slot)
{
	__sync_fetch_and_or(&map_line(map, slot)->bits, map_bit(slot));
}

/* Clears the bit; true if it was set, which only one of several callers sees. */
static bool map_test_and_clear(struct map_line *map, u32 slot)
{
	return __sync_fetch_and_and(&map_line(map, slot)->bits, ~map_bit(slot)) & map_bit(slot);
}

/*
 * The first slots of those cores of a line all of whose CPUs are set. Added to a core's bits but the last, a one
 * carries into the last if they are all set:
 *
 *	cores of four    0111 & 1111    last bit apart    111 + 001 = 1000    and last bit set? whole
 */
static u64 whole_cores(u64 bits, u32 line)
{
	u64 first = tun.core_first, last = tun.core_last;

	bits |= absent_slots[line & (MAX_LINES - 1)];
	bits &= (bits & ~last) + first;
	return (bits & last) >> (tun.smt_width - 1);
}

static struct map_walk map_walk_from(u32 llc, u32 slot)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	struct map_walk walk = {
		.first_line = l->first_line,
		.nr_lines = l->nr_lines,
		.step = bpf_arena_loop_zero,
	};
	u32 line = slot / SLOTS_PER_LINE - walk.first_line;

	/* A slot of another LLC: any start will do, and its offset spreads the callers. */
	walk.start = line < walk.nr_lines ? line : 0;
	walk.low = map_bit(slot) | (map_bit(slot) - 1);
	return walk;
}

/* Moves to the next line. */
static void map_walk_line(struct map_line *map, struct map_walk *walk)
{
	u32 line = walk->start + walk->step;

	if (line >= walk->nr_lines)
		line -= walk->nr_lines;
	line += walk->first_line;
	walk->base = line * SLOTS_PER_LINE;
	walk->bits = READ_ONCE(map[line & (MAX_LINES - 1)].bits);
	if (walk->whole_cores)
		walk->bits = whole_cores(walk->bits, line);
	if (!walk->step)
		walk->bits &= ~walk->low;
	if (walk->step == walk->nr_lines)
		walk->bits &= walk->low;
	walk->step += bpf_arena_loop_one;
}

static bool map_walk_more(const struct map_walk *walk)
{
	return walk->bits || walk->step <= walk->nr_lines;
}

/* Moves to the next set bit of the line, or of the next line; false if that has none. */
static bool map_walk_next(struct map_line *map, struct map_walk *walk)
{
	if (!walk->bits)
		map_walk_line(map, walk);
	if (!walk->bits)
		return false;
	walk->slot = walk->base + ctzll(walk->bits);
	walk->bits &= walk->bits - 1;
	return true;
}

/* Is any bit of the LLC set? Reads nr_lines words. */
static bool map_any(struct map_line *map, u32 llc)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	u32 line = l->first_line, end = line + l->nr_lines;

	while (line < end && can_loop) {
		if (READ_ONCE(map[line & (MAX_LINES - 1)].bits))
			return true;
		line++;
	}
	return false;
}
