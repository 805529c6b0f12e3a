/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sparse bitmaps, idle_map and overload_map: one bit a CPU, SLOTS_PER_LINE bits a cache line. Each
 * LLC begins a new cache line, so that few CPUs write a line (Sistare's task stealing). A slot is
 * the position of a CPU in these bitmaps:
 *
 *	LLC 0 (40 slots)                                                     LLC 1
 *	[. 1 . 1 . . . .]    [. . . . . . . .]    [1 . . . . . . .]          [. . 1 ...
 *
 * There is no summary word that says which lines have bits set. When a CPU cleared a bit there, the
 * line would be hidden for a moment although another CPU sets a bit in it. And the largest LLCs
 * have only 16 lines.
 *
 * A walk visits the set bits in a window of one LLC's slots once. The window begins after a given
 * slot, and wraps at the end of the LLC:
 *
 *	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);
 *	map_for_each(&map, &walk)
 *		... walk.slot ...
 *
 * Bounded by the LLC's lines, the first of them twice, and SLOTS_PER_LINE bits a line.
 */
#pragma once

/* By line, the slots whose CPU is usable; atomic. */
u32 usable_slots[MAX_LINES];

enum { ALL_SLOTS = 1 << 30 }; /* a window as large as the LLC */

struct map_walk {
	u32 first;    /* first slot of the LLC */
	u32 nr_slots; /* of the LLC */
	u32 pos;      /* where the window begins, relative to the first slot */
	u32 window;   /* its slots: 0..nr_slots */
	u32 done;     /* slots of the window that were read, with the present line, */
	u32 before;   /* ... and without it */
	u64 bits;     /* set bits of the present line, not yet visited; bit 0 is slot base */
	u32 base;
	u32 slot;	  /* the slot visited now */
	bool whole_cores; /* visit a slot of each core whose CPUs are all set: whole_cores() */
};

static struct map_line *map_line(struct sparse_map *map, u32 slot)
{
	return &map->lines[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)];
}

static u64 map_bit(u32 slot)
{
	return 1ULL << (slot % SLOTS_PER_LINE);
}

static bool is_usable_slot(u32 slot)
{
	return READ_ONCE(usable_slots[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)]) & map_bit(slot);
}

static bool map_test(struct sparse_map *map, u32 slot)
{
	return READ_ONCE(map_line(map, slot)->bits) & map_bit(slot);
}

/* Check the lines of @llc after the first, for map_any(). Bounded by LINES_PER_LLC. */
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

/* Set the bit. Full barrier, because the value is used; otherwise BPF's atomic would be relaxed. */
static void map_set(struct sparse_map *map, u32 slot)
{
	u64 before = __sync_fetch_and_or(&map_line(map, slot)->bits, map_bit(slot));

	barrier_var(before);
}

/*
 * Clear the bit. Return true if it was set; of several callers only one sees that. Full barrier if
 * the bit was read as set, otherwise only a read.
 */
static bool map_test_and_clear(struct sparse_map *map, u32 slot)
{
	return map_test(map, slot) &&
	       __sync_fetch_and_and(&map_line(map, slot)->bits, ~map_bit(slot)) & map_bit(slot);
}

/*
 * Return the first slots of the cores in a line whose usable CPUs are all set. A core whose first
 * CPU is not usable is left out. Add 1 to the bits of a core without its last bit: the carry
 * reaches the last bit if all of them are set. The core is whole if its last bit is set, too. Cores
 * of four:
 *
 *	bits   without the last bit   + 1    & bits
 *	1111   0111                   1000   1000     whole
 *	1011   0011                   0100   0000
 *	0111   0111                   1000   0000
 */
static u64 whole_cores(u64 set, u32 line)
{
	u64 first = machine.core_first, last = machine.core_last;
	u64 bits = set | ~(u64)READ_ONCE(usable_slots[line & (MAX_LINES - 1)]);

	bits &= (bits & ~last) + first;
	bits = (bits & last) >> (machine.smt_width - 1);
	return (bits & set) | ((bits & ~set) << (machine.smt_width - 1) & set);
}

/* Begin a walk of @window slots after @slot: ALL_SLOTS, or at least 1. */
static struct map_walk map_walk_from(u32 llc, u32 slot, u32 window)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	struct map_walk walk = {
		.first = l->first_line * SLOTS_PER_LINE,
		.nr_slots = l->nr_slots,
	};
	u32 pos = slot - walk.first;

	/* A slot of another LLC: use its offset in the line, only to spread the callers. */
	if (pos >= walk.nr_slots)
		pos = slot % SLOTS_PER_LINE;
	walk.pos = pos + 1 < walk.nr_slots ? pos + 1 : 0;
	walk.window = min(window, walk.nr_slots);
	return walk;
}

/*
 * Read the bits of the next line that has some set in the window. Bounded by the LLC's lines. Not
 * static, so that the verifier checks it once for all walks. Return 0.
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

/* Return how many slots the walk has passed: to the present one, or all if it @found none. */
static u32 map_walked(const struct map_walk *walk, bool found)
{
	return found ? walk->before + walk->slot - walk->base + 1 : walk->window;
}
