/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sparse bitmaps: one bit a CPU, SLOTS_PER_LINE bits a cache line, each LLC on lines of its own, so
 * that CPUs which write seldom share a line with many others (seed 003: "a limited number of
 * significant bits per cacheline"). Two of them: idle_map and overload_map.
 *
 * A walk visits the set bits of one LLC once, from the slot after a given one on, wrapping:
 *
 *	from slot 18:    line 1 [19..31]  line 2 [32..47]  line 0 [0..15]  line 1 [16..18]
 *	                 step 0           step 1           step 2          step 3 = nr_lines
 *
 *	struct map_walk walk = map_walk_from(llc, slot);
 *	while (map_walk_line(map, &walk) && can_loop)
 *		while ((slot = map_walk_next(&walk)) >= 0 && can_loop)
 *			...
 *
 * Bounded by nr_lines + 1 steps and SLOTS_PER_LINE bits a step.
 */
#pragma once

/* A zero that the verifier does not know: what starts from it is one state to it, not one for each value. */
u32 zero;

struct map_walk {
	u32 first_line, nr_lines;
	u32 line;   /* relative to first_line */
	u32 left;   /* steps, nr_lines + 1 at first: counted down, for the verifier knows too well what counts up */
	u64 low;    /* bits of the first line up to the starting slot: the last step's share */
	u64 word;   /* the current line */
	u64 window; /* its bits that belong to this step */
	u64 bits;   /* those set and not yet visited */
	u32 base;   /* slot of its bit 0 */
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

static struct map_walk map_walk_from(u32 llc, u32 slot)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	struct map_walk walk = {
		.first_line = l->first_line,
		.nr_lines = l->nr_lines,
		.left = l->nr_lines + 1,
	};
	u32 line = slot / SLOTS_PER_LINE - walk.first_line;

	/* A slot of another LLC: any start will do, and its offset spreads the callers. */
	walk.line = line < walk.nr_lines ? line : zero;
	walk.low = map_bit(slot) | (map_bit(slot) - 1);
	return walk;
}

/* Moves to the next line; false when the LLC has been gone through. */
static bool map_walk_line(struct map_line *map, struct map_walk *walk)
{
	u32 line;

	if (!walk->left)
		return false;

	line = walk->first_line + walk->line;
	walk->base = line * SLOTS_PER_LINE;
	walk->word = READ_ONCE(map[line & (MAX_LINES - 1)].bits);
	walk->window = walk->left > walk->nr_lines ? ~walk->low : walk->left > 1 ? ~0ULL : walk->low;
	walk->bits = walk->word & walk->window;

	walk->left--;
	if (++walk->line >= walk->nr_lines)
		walk->line = zero;
	return true;
}

/* The next set bit's slot in the current line, or -1. */
static s32 map_walk_next(struct map_walk *walk)
{
	s32 slot;

	if (!walk->bits)
		return -1;
	slot = walk->base + ctzll(walk->bits);
	walk->bits &= walk->bits - 1;
	return slot;
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
