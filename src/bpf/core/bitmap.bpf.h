/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sparse bitmaps, idle_map and overload_map: one bit a CPU, SLOTS_PER_LINE bits a cache line, each
 * LLC on lines of its own, so that a line is written by few CPUs (Sistare's task stealing). A
 * summary word for each LLC says which of its lines may have bits set, so that a walk in vain costs
 * the same in an LLC of 8 CPUs and of 1024:
 *
 *	llcs[]    0 0 ... 1 0 1     set with the first bit of a line, cleared by a walk that
 *	                  |   |     finds the line empty
 *	lines[]          [. 1 . 1]    [. . . .]    [1 . . .]
 *
 * A walk visits the set bits of a window of one LLC's slots once: so many from the slot after a
 * given one on, wrapping:
 *
 *	40 slots from 18 on:   line 1 [19..31]   line 2 [32..47]   line 0 [0..10]
 *	                       lines                               wrapped
 *
 *	struct map_walk walk = map_walk_from(&map, llc, slot, ALL_SLOTS);
 *	map_for_each(&map, &walk)
 *		... walk.slot ...
 *
 * Bounded by the lines whose bits in llcs[] are set, the first of them twice, and SLOTS_PER_LINE
 * bits a line.
 */
#pragma once

/* By line, the slots whose CPU is present; atomic. */
u32 present_slots[MAX_LINES];

enum {
	ALL_SLOTS = 1 << 30, /* a window as large as the LLC */
	NO_LINE = LINES_PER_LLC,
};

/* Lines are relative to the LLC's first. */
struct map_walk {
	u32 llc, first_line, nr_slots;
	u32 pos;	    /* where the window begins, relative to the LLC's first slot */
	u32 window;	    /* its slots: 1..nr_slots */
	u64 lines, wrapped; /* still to go to before and after the LLC's end; a bit each */
	/* the lines of which only the first and last bits are in the window; or NO_LINE */
	u32 start, end;
	u32 wrapped_end;  /* end, once the walk has wrapped */
	u64 first, last;  /* these bits */
	u64 bits;	  /* of the current line, set and not yet visited */
	u32 base;	  /* slot of its bit 0 */
	u32 slot;	  /* where the walk is */
	bool whole_cores; /* only the first slots of cores all of whose CPUs are set */
};

static struct map_line *map_line(struct sparse_map *map, u32 slot)
{
	return &map->lines[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)];
}

static struct map_line *map_llc(struct sparse_map *map, u32 llc)
{
	return &map->llcs[llc & (MAX_LLCS - 1)];
}

static u64 map_bit(u32 slot)
{
	return 1ULL << (slot % SLOTS_PER_LINE);
}

static bool is_present_slot(u32 slot)
{
	return READ_ONCE(present_slots[(slot / SLOTS_PER_LINE) & (MAX_LINES - 1)]) & map_bit(slot);
}

static u64 line_bit(u32 line)
{
	return 1ULL << (line % LINES_PER_LLC);
}

static bool map_test(struct sparse_map *map, u32 slot)
{
	return READ_ONCE(map_line(map, slot)->bits) & map_bit(slot);
}

/* May any bit of the LLC be set? */
static bool map_any(struct sparse_map *map, u32 llc)
{
	return READ_ONCE(map_llc(map, llc)->bits);
}

/* Full barrier, as every atomic that returns a value: pairs with map_line_emptied(). */
static void map_set(struct sparse_map *map, const volatile struct cpu_layout *l)
{
	u64 bit = line_bit(l->slot / SLOTS_PER_LINE - llc_layout(l->llc)->first_line);
	struct map_line *llc = map_llc(map, l->llc);

	if (!__sync_fetch_and_or(&map_line(map, l->slot)->bits, map_bit(l->slot)) &&
	    !(READ_ONCE(llc->bits) & bit))
		__sync_fetch_and_or(&llc->bits, bit);
}

/* Clears the bit; true if it was set, which only one of several callers sees. */
static bool map_test_and_clear(struct sparse_map *map, u32 slot)
{
	return __sync_fetch_and_and(&map_line(map, slot)->bits, ~map_bit(slot)) & map_bit(slot);
}

/*
 * The LLC's word says that a line may have bits set, and it has none. If it has just got one the
 * second look sees that. The value makes the first a full barrier: pairs with map_set(), which sets
 * a bit of the line and then reads the word.
 */
static void map_line_emptied(struct sparse_map *map, u32 llc, u32 line,
			     const struct map_line *emptied)
{
	u64 before = __sync_fetch_and_and(&map_llc(map, llc)->bits, ~line_bit(line));

	barrier_var(before);
	if (READ_ONCE(emptied->bits))
		__sync_fetch_and_or(&map_llc(map, llc)->bits, line_bit(line));
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

/* Where a walk from the slot after @slot on begins, relative to the first slot of @llc. */
static u32 map_walk_start(u32 llc, u32 slot)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	u32 pos = slot - l->first_line * SLOTS_PER_LINE;

	/* A slot of another LLC: any start will do, and its offset spreads the callers. */
	if (pos >= l->nr_slots)
		pos = slot % SLOTS_PER_LINE;
	return pos + 1 < l->nr_slots ? pos + 1 : 0;
}

/* @window: ALL_SLOTS, or 1 and more. */
static struct map_walk map_walk_from(struct sparse_map *map, u32 llc, u32 slot, u32 window)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	u64 lines = READ_ONCE(map_llc(map, llc)->bits), from_start, to_end;
	struct map_walk walk = {
		.llc = llc,
		.first_line = l->first_line,
		.nr_slots = l->nr_slots,
	};
	u32 end;

	walk.pos = map_walk_start(llc, slot);
	walk.window = min(window, walk.nr_slots);
	end = walk.pos + walk.window - 1;
	walk.first = ~(map_bit(walk.pos) - 1);
	walk.start = walk.pos / SLOTS_PER_LINE;
	from_start = ~(line_bit(walk.start) - 1);
	if (end < walk.nr_slots) {
		walk.end = end / SLOTS_PER_LINE;
		to_end = line_bit(walk.end) | (line_bit(walk.end) - 1);
		walk.lines = lines & from_start & to_end;
	} else {
		end -= walk.nr_slots;
		walk.end = NO_LINE;
		walk.wrapped_end = end / SLOTS_PER_LINE;
		to_end = line_bit(walk.wrapped_end) | (line_bit(walk.wrapped_end) - 1);
		walk.lines = lines & from_start;
		walk.wrapped = lines & to_end;
	}
	walk.last = map_bit(end) | (map_bit(end) - 1);
	return walk;
}

/* Moves to the next line. The verifier looks at it once, for all walks. */
__noinline s32 map_walk_line(struct sparse_map *map __arg_nonnull,
			     struct map_walk *walk __arg_nonnull)
{
	struct map_line *at;
	u32 line;

	if (!walk->lines) {
		walk->lines = walk->wrapped;
		walk->wrapped = 0;
		walk->start = NO_LINE;
		walk->end = walk->wrapped_end;
	}
	line = ctzll(walk->lines);
	walk->lines &= walk->lines - 1;
	walk->base = (walk->first_line + line) * SLOTS_PER_LINE;
	at = map_line(map, walk->base);
	walk->bits = READ_ONCE(at->bits);
	if (!walk->bits) {
		map_line_emptied(map, walk->llc, line, at);
		return 0;
	}
	if (walk->whole_cores)
		walk->bits = whole_cores(walk->bits, walk->first_line + line);
	if (line == walk->start)
		walk->bits &= walk->first;
	if (line == walk->end)
		walk->bits &= walk->last;
	return 0;
}

static bool map_walk_more(const struct map_walk *walk)
{
	return walk->bits || walk->lines || walk->wrapped;
}

/* Moves to the next set bit of the line, or of the next line; false if that has none. */
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

#define map_for_each(map, walk)                                                                    \
	while (map_walk_more(walk) && can_loop)                                                    \
		if (map_walk_next(map, walk))

/*
 * Slots that the walk went over until it came where it is; all of the window, if it @found nothing.
 */
static u32 map_walked(const struct map_walk *walk, bool found)
{
	u32 pos = walk->slot - walk->first_line * SLOTS_PER_LINE;

	if (!found)
		return walk->window;
	return pos + 1 - walk->pos + (pos < walk->pos ? walk->nr_slots : 0);
}
