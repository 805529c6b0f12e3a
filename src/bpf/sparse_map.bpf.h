/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sparse bitmaps: one bit a CPU, SLOTS_PER_LINE bits a cache line, each LLC on lines of its own, so
 * that CPUs which write seldom share a line with many others ("a limited number of
 * significant bits per cacheline", Sistare's task stealing). Two of them: idle_map and overload_map.
 *
 * A walk visits the set bits of a window of one LLC's slots once: so many from the slot after a given one on, wrapping:
 *
 *	40 slots from 18 on:   line 1 [19..31]   line 2 [32..47]   line 0 [0..10]
 *	left:                  40 -> 27          27 -> 11          11 -> 0
 *
 *	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);
 *	while (map_walk_more(&walk) && can_loop)
 *		if (map_walk_next(map, &walk))
 *			... walk.slot ...
 *
 * Bounded by nr_lines + 1 lines and SLOTS_PER_LINE bits a line. One loop, not two: so the verifier sees soon that all
 * rounds are alike.
 */
#pragma once

/* Slots without a CPU whose core has one: such a core is whole when its CPUs are. */
const volatile u16 absent_slots[MAX_LINES];

enum {
	ALL_SLOTS = 1 << 30, /* a window as large as the LLC */
};

struct map_walk {
	u32 first_slot;
	u32 nr_slots;
	u32 pos;	  /* next slot to go to, relative to first_slot */
	u32 left;	  /* slots of the window from there on */
	u32 window;	  /* slots of the window */
	u32 base;	  /* slot of bit 0 of the current line */
	u32 end;	  /* slot after the current line's share of the window */
	u64 bits;	  /* of that share, set and not yet visited */
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

static u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

static struct map_walk map_walk_from(u32 llc, u32 slot, u32 window)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	struct map_walk walk = {
		.first_slot = l->first_line * SLOTS_PER_LINE,
		.nr_slots = l->nr_slots,
	};
	u32 pos = slot - walk.first_slot;

	/* A slot of another LLC: any start will do, and its offset spreads the callers. */
	if (pos >= walk.nr_slots)
		pos = slot % SLOTS_PER_LINE;
	walk.pos = pos + 1 < walk.nr_slots ? pos + 1 : 0;
	walk.window = min_u32(window, walk.nr_slots);
	walk.left = walk.window;
	return walk;
}

/* Moves to the next line. */
static void map_walk_line(struct map_line *map, struct map_walk *walk)
{
	u32 offset = walk->pos % SLOTS_PER_LINE;
	u32 line = (walk->first_slot + walk->pos) / SLOTS_PER_LINE;
	u32 nr = min_u32(min_u32(SLOTS_PER_LINE - offset, walk->nr_slots - walk->pos), walk->left);

	walk->base = line * SLOTS_PER_LINE;
	walk->end = walk->base + offset + nr;
	walk->bits = READ_ONCE(map[line & (MAX_LINES - 1)].bits);
	if (walk->whole_cores)
		walk->bits = whole_cores(walk->bits, line);
	walk->bits &= ((1ULL << (nr & 31)) - 1) << offset;
	walk->left -= nr;
	walk->pos += nr;
	if (walk->pos >= walk->nr_slots)
		walk->pos = 0;
}

static bool map_walk_more(const struct map_walk *walk)
{
	return walk->bits || walk->left;
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

/* Slots that the walk went over until it came where it is; all of the window, if @found nothing. */
static u32 map_walked(const struct map_walk *walk, bool found)
{
	return walk->window - walk->left - (found ? walk->end - walk->slot - 1 : 0);
}
