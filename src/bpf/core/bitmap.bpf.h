/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sparse bitmaps, idle_map and overload_map: one bit a CPU, SLOTS_PER_LINE bits a cache line, each
 * LLC on lines of its own, so that a line is written by few CPUs (Sistare's task stealing):
 *
 *	LLC 0 (40 slots)                                                     LLC 1
 *	[. 1 . 1 . . . .]    [. . . . . . . .]    [1 . . . . . . .]          [. . 1 ...
 *
 * There is no summary of which lines have bits set: clearing its bits would hide bits of the lines
 * for a moment, and the largest LLCs have 16 lines.
 *
 * A walk visits the set bits of a window of one LLC's slots once: so many from the slot after a
 * given one on, wrapping:
 *
 *	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);
 *	map_for_each(&map, &walk)
 *		... walk.slot ...
 *
 * Bounded by the LLC's lines, the first of them twice, and SLOTS_PER_LINE bits a line.
 */
#pragma once

/* By line, the slots whose CPU is present; atomic. */
u32 present_slots[MAX_LINES];

enum { ALL_SLOTS = 1 << 30 }; /* a window as large as the LLC */

struct map_walk {
	u32 first;    /* slot of the LLC */
	u32 nr_slots; /* of the LLC */
	u32 pos;      /* where the window begins, relative to the first slot */
	u32 window;   /* its slots: 0..nr_slots */
	u32 done;     /* slots of the window whose bits were read, */
	u32 before;   /* ... and up to base */
	u64 bits;     /* read last: set, and not yet visited; bit 0 is that of the slot base */
	u32 base;
	u32 slot;	  /* where the walk is */
	bool whole_cores; /* only the first slots of cores all of whose CPUs are set */
};

static struct map_line *map_line(struct sparse_map *map, u32 slot)
{
	return &map->lines[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)];
}

static u64 map_bit(u32 slot)
{
	return 1ULL << (slot % SLOTS_PER_LINE);
}

static bool is_present_slot(u32 slot)
{
	return READ_ONCE(present_slots[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)]) & map_bit(slot);
}

static bool map_test(struct sparse_map *map, u32 slot)
{
	return READ_ONCE(map_line(map, slot)->bits) & map_bit(slot);
}

/* Part of map_any(): the lines of @llc after the first. */
__noinline bool map_any_further(struct sparse_map *map __arg_nonnull, u32 llc)
{
	u32 first = llc_layout(llc)->first_line, end = first + llc_layout(llc)->nr_lines, i;

	for (i = first + 1 + bpf_arena_loop_zero; i < end && can_loop; i++)
		if (READ_ONCE(map->lines[i & (MAX_LINES - 1)].bits))
			return true;
	return false;
}

/* Return true if any bit of the LLC is set. Bounded by LINES_PER_LLC. */
static bool map_any(struct sparse_map *map, u32 llc)
{
	const volatile struct llc_layout *l = llc_layout(llc);

	return READ_ONCE(map->lines[l->first_line & (MAX_LINES - 1)].bits) ||
	       (l->nr_lines > 1 && map_any_further(map, llc));
}

/*
 * Set the bit. Full barrier: the compiler keeps the value, without which BPF's atomic is relaxed.
 */
static void map_set(struct sparse_map *map, u32 slot)
{
	u64 before = __sync_fetch_and_or(&map_line(map, slot)->bits, map_bit(slot));

	barrier_var(before);
}

/*
 * Clear the bit; return true if it was set, which only one of several callers sees. Full barrier if
 * it seemed to be set; otherwise only a read.
 */
static bool map_test_and_clear(struct sparse_map *map, u32 slot)
{
	return map_test(map, slot) &&
	       __sync_fetch_and_and(&map_line(map, slot)->bits, ~map_bit(slot)) & map_bit(slot);
}

/*
 * The first slots of those cores of a line all of whose CPUs that are present are set. Added to a
 * core's bits but the last, a one carries into the last if they are all set:
 *
 *	cores of four    0111 & 1111   last bit apart   111 + 001 = 1000   and last bit set? whole
 */
static u64 whole_cores(u64 set, u32 line)
{
	u64 first = machine.core_first, last = machine.core_last;
	u64 bits = set | ~(u64)READ_ONCE(present_slots[line & (MAX_LINES - 1)]);

	bits &= (bits & ~last) + first;
	return (bits & last) >> (machine.smt_width - 1) & set;
}

/* @window: ALL_SLOTS, or 1 and more. */
static struct map_walk map_walk_from(u32 llc, u32 slot, u32 window)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	struct map_walk walk = {
		.first = l->first_line * SLOTS_PER_LINE,
		.nr_slots = l->nr_slots,
	};
	u32 pos = slot - walk.first;

	/* A slot of another LLC: any start will do, and its offset spreads the callers. */
	if (pos >= walk.nr_slots)
		pos = slot % SLOTS_PER_LINE;
	walk.pos = pos + 1 < walk.nr_slots ? pos + 1 : 0;
	walk.window = min(window, walk.nr_slots);
	return walk;
}

/*
 * Read the bits of the next line that has some, as far as it is in the window. Return 0. Global, so
 * that the verifier checks it once for all walks.
 */
__noinline s32 map_walk_line(struct sparse_map *map __arg_nonnull,
			     struct map_walk *walk __arg_nonnull)
{
	while (!walk->bits && walk->done < walk->window && can_loop) {
		u32 at = walk->pos + walk->done, nr;
		u64 bits;

		if (at >= walk->nr_slots)
			at -= walk->nr_slots;
		nr = min(SLOTS_PER_LINE - at % SLOTS_PER_LINE, walk->nr_slots - at);
		nr = min(nr, walk->window - walk->done);
		walk->base = walk->first + at;
		bits = READ_ONCE(map_line(map, walk->base)->bits);
		if (bits && walk->whole_cores)
			bits = whole_cores(bits, walk->base / SLOTS_PER_LINE);
		walk->bits = bits >> at % SLOTS_PER_LINE & ((1ULL << nr) - 1);
		walk->before = walk->done;
		walk->done += nr;
	}
	return 0;
}

/* Move to the next set bit. Return false if there is none. */
static bool map_walk_next(struct sparse_map *map, struct map_walk *walk)
{
	if (!walk->bits)
		map_walk_line(map, walk);
	if (!walk->bits)
		return false;
	walk->slot = walk->base + ctzll(walk->bits);
	walk->bits &= walk->bits - 1;
	return true;
}

#define map_for_each(map, walk) while (map_walk_next(map, walk) && can_loop)

/*
 * Slots that the walk went over until it came where it is; all of the window, if it @found nothing.
 */
static u32 map_walked(const struct map_walk *walk, bool found)
{
	return found ? walk->before + walk->slot - walk->base + 1 : walk->window;
}
