/* What all nodes of gasnet_random.c do together: barriers of every kind, collectives, teams. */
#ifndef GASNET_RANDOM_TOGETHER_H
#define GASNET_RANDOM_TOGETHER_H

#include "gasnet_random_messages.h"

enum { COLLS = 4, COLL_MOST = 6000 };

/* ---- barriers, which the first thread of each node makes ---- */

static unsigned barriers_made;
static int notified;

/* What a node calls barrier `b`. */
static int name(unsigned b, gasnet_node_t node, int *id)
{
	uint64_t h = mix(seed, b), own = mix(h, node + 1);

	*id = (int)(h >> 40);
	switch (h % 8) {
	case 0:
		return GASNET_BARRIERFLAG_ANONYMOUS;
	case 1:
	case 2:
		return 0;
	case 3:
	case 4:
		return own % 2 ? 0 : GASNET_BARRIERFLAG_ANONYMOUS;
	case 5:
		return node == h / 8 % nodes ? GASNET_BARRIERFLAG_MISMATCH : own % 2 ? 0 : GASNET_BARRIERFLAG_ANONYMOUS;
	case 6:
		*id += node == h / 8 % nodes;
		return 0;
	default:
		return GASNET_BARRIERFLAG_UNNAMED;
	}
}

/* What barrier `b` gives: whether names met, whether there was one, and which. */
static int outcome(unsigned b, int *named, int *id)
{
	gasnet_node_t n;

	*named = 0;
	for (n = 0; n < nodes; n++) {
		int its, flags = name(b, n, &its);

		if (flags & GASNET_BARRIERFLAG_MISMATCH) return GASNET_ERR_BARRIER_MISMATCH;
		if (flags & GASNET_BARRIERFLAG_ANONYMOUS) continue;
		if (*named && its != *id) return GASNET_ERR_BARRIER_MISMATCH;
		*named = 1, *id = its;
	}
	return GASNET_OK;
}

static void barrier_over(struct worker *w, int code)
{
	int named, id = 0, got = -1;

	HOLDS(code == outcome(barriers_made, &named, &id));
	if (code == GASNET_OK) {
		int anonymous = gasnet_barrier_result(&got);

		HOLDS(named ? anonymous == 0 && got == id : anonymous != 0);
	}
	notified = 0;
	barriers_made++;
}

/* A step of the next barrier; all of it if `whole`. */
static void barrier_step(struct worker *w, int whole)
{
	int id, flags = name(barriers_made, me, &id), code;

	w->doing = "a barrier";
	if (!notified && whole && one_in(w, 2)) {
		barrier_over(w, gasnet_barrier(id, flags));
		return;
	}
	if (!notified) {
		gasnet_barrier_notify(id, flags);
		notified = 1;
		if (!whole) return;
	}
	if (whole) {
		code = gasnet_barrier_wait(id, flags);
	} else {
		code = gasnet_barrier_try(id, flags);
		if (code == GASNET_ERR_NOT_READY) return;
	}
	barrier_over(w, code);
}

/* ---- collectives, with an image for each worker ---- */

struct coll {
	int kind;
	unsigned number;
	gasnet_image_t root;
	gasnet_team_handle_t team;
	size_t len;
	gasnet_coll_handle_t handle;
};

static gasnet_team_handle_t half;
/* Members of the team of half the images that this one is in; of all. */
static gasnet_image_t half_members[NODES * THREADS], all_members[NODES * THREADS];
static unsigned half_count;
static byte *coll_from[THREADS][COLLS], *coll_to[THREADS][COLLS];

static void add(void *results, size_t count, const void *left, size_t left_count, const void *right, size_t elem_size,
		int flags, int argument)
{
	size_t i;

	(void)flags;
	CHECK(elem_size == 8 && left_count == count && argument == 17);
	for (i = 0; i < count; i++)
		((uint64_t *)results)[i] = ((const uint64_t *)left)[i] + ((const uint64_t *)right)[i];
}

static void get_teams(struct worker *w)
{
	unsigned images = nodes * threads, i;
	gasnet_image_t counts[NODES] = { 0 };
	gasnet_coll_fn_entry_t function = { add, 0 };

	for (i = 0; i < nodes; i++) counts[i] = threads;
	gasnet_coll_init(threads > 1 ? counts : NULL, w->number, &function, 1, 0);
	for (i = 0; i < images; i++) all_members[i] = i;
	if (threads > 1) return;
	/* Backwards. */
	half = gasnet_coll_team_split(GASNET_TEAM_ALL, me % 2, nodes - me, NULL);
	half_count = 0;
	for (i = nodes; i-- > 0;)
		if (i % 2 == me % 2) half_members[half_count++] = i;
	CHECK(gasnet_coll_team_size(half) == half_count);
}

/* An image's part of a collective, by the number of the collective and the image. */
static uint64_t part(unsigned number, gasnet_image_t image)
{
	return mix(seed ^ 0xc011, (uint64_t)number << 16 | image);
}

static void members_of(struct coll *c, unsigned *n, const gasnet_image_t **members, unsigned *mine, struct worker *w)
{
	*members = c->team == GASNET_TEAM_ALL ? all_members : half_members;
	*n = c->team == GASNET_TEAM_ALL ? nodes * threads : half_count;
	for (*mine = 0; (*members)[*mine] != w->number;) ++*mine;
}

#define ONE_OR_LIST(name, args_one, args_list)                                     \
	if (listed && nb) c->handle = gasnet_coll_##name##M_nb args_list;           \
	if (listed && !nb) gasnet_coll_##name##M args_list;                         \
	if (!listed && nb) c->handle = gasnet_coll_##name##_nb args_one;            \
	if (!listed && !nb) gasnet_coll_##name args_one

static void start_coll(struct worker *w, struct coll *c, unsigned place_of_it, unsigned number)
{
	static const int in[] = { GASNET_COLL_IN_MYSYNC, GASNET_COLL_IN_ALLSYNC };
	static const int out[] = { GASNET_COLL_OUT_MYSYNC, GASNET_COLL_OUT_ALLSYNC };
	int flags = GASNET_COLL_LOCAL | in[draw(&w->common) % 2] | out[draw(&w->common) % 2];
	int listed = draw(&w->common) % 2, nb = draw(&w->common) % 3 > 0;
	byte *src = coll_from[w->thread][place_of_it], *dst = coll_to[w->thread][place_of_it];
	void *srcs[THREADS], *dsts[THREADS], *of_root;
	const gasnet_image_t *members;
	unsigned n, mine, i;

	c->number = number;
	c->kind = draw(&w->common) % 9;
	c->team = threads == 1 && draw(&w->common) % 3 == 0 ? half : GASNET_TEAM_ALL;
	c->handle = GASNET_COLL_INVALID_HANDLE;
	i = draw(&w->common);
	c->len = i % 4 == 0 ? i / 4 % COLL_MOST : i / 4 % 70;
	i = draw(&w->common);
	members_of(c, &n, &members, &mine, w);
	c->root = i % n;
	for (i = 0; i < threads; i++) srcs[i] = coll_from[i][place_of_it], dsts[i] = coll_to[i][place_of_it];
	fill(src, (COLL_MOST + 8) * n, part(number, w->number));
	memset(dst, EDGE, (COLL_MOST + 8) * n);
	of_root = mine == c->root ? src : NULL;
	w->doing = "a collective";
	switch (c->kind) {
	case 0:
		ONE_OR_LIST(broadcast, (c->team, dst, c->root, of_root, c->len, flags),
			    (c->team, dsts, c->root, of_root, c->len, flags));
		break;
	case 1:
		ONE_OR_LIST(scatter, (c->team, dst, c->root, of_root, c->len, flags),
			    (c->team, dsts, c->root, of_root, c->len, flags));
		break;
	case 2:
		ONE_OR_LIST(gather, (c->team, c->root, dst, src, c->len, flags), (c->team, c->root, dst, srcs, c->len, flags));
		break;
	case 3:
		ONE_OR_LIST(gather_all, (c->team, dst, src, c->len, flags), (c->team, dsts, srcs, c->len, flags));
		break;
	case 4:
		ONE_OR_LIST(exchange, (c->team, dst, src, c->len, flags), (c->team, dsts, srcs, c->len, flags));
		break;
	case 5:
		ONE_OR_LIST(reduce, (c->team, c->root, dst, src, 0, 0, 8, c->len / 8, 0, 17, flags),
			    (c->team, c->root, dst, srcs, 0, 0, 8, c->len / 8, 0, 17, flags));
		break;
	case 6:
	case 7:
		flags |= c->kind == 6 ? GASNET_COLL_INCLUSIVE_SCAN : GASNET_COLL_EXCLUSIVE_SCAN;
		ONE_OR_LIST(scan, (c->team, dst, 0, 0, src, 0, 0, 8, c->len / 8, 0, 17, flags),
			    (c->team, dsts, 0, 0, srcs, 0, 0, 8, c->len / 8, 0, 17, flags));
		break;
	default:
		/* The first of each node only, so not while threads are apart. */
		if (threads == 1) HOLDS(gasnet_coll_barrier(c->team, (int)number, 0) == GASNET_OK);
	}
}

/* What a collective that is complete has brought. */
static void look_at_coll(struct worker *w, struct coll *c, unsigned place_of_it)
{
	byte *dst = coll_to[w->thread][place_of_it], *want;
	const gasnet_image_t *members;
	unsigned n, mine, k;
	size_t total = 0, i;

	members_of(c, &n, &members, &mine, w);
	want = (byte *)malloc((COLL_MOST + 8) * (n + 1));
	HOLDS(want);
	switch (c->kind) {
	case 0:
		total = c->len;
		fill(want, total, part(c->number, members[c->root]));
		break;
	case 1:
		total = c->len;
		fill(want, total * n, part(c->number, members[c->root]));
		memmove(want, want + mine * total, total);
		break;
	case 2:
	case 3:
		if (c->kind == 2 && mine != c->root) break;
		total = c->len * n;
		for (k = 0; k < n; k++) fill(want + k * c->len, c->len, part(c->number, members[k]));
		break;
	case 4:
		total = c->len * n;
		for (k = 0; k < n; k++) {
			byte *whole = (byte *)malloc(total + 1);

			HOLDS(whole);
			fill(whole, total, part(c->number, members[k]));
			memcpy(want + k * c->len, whole + mine * c->len, c->len);
			free(whole);
		}
		break;
	case 5:
	case 6:
	case 7: {
		unsigned count = c->kind == 5 ? n : c->kind == 6 ? mine + 1 : mine;
		uint64_t *sum = (uint64_t *)want, one[COLL_MOST / 8 + 1];

		if (count == 0 || (c->kind == 5 && mine != c->root)) break;
		total = c->len / 8 * 8;
		memset(want, 0, total);
		for (k = 0; k < count; k++) {
			fill((byte *)one, total, part(c->number, members[k]));
			for (i = 0; i < total / 8; i++) sum[i] += one[i];
		}
		break;
	}
	}
	HOLDS(memcmp(dst, want, total) == 0);
	HOLDS(is_all(dst + total, (COLL_MOST + 8) * n - total, EDGE));
	free(want);
}

/* Ends those that were started, in any order. */
static void end_colls(struct worker *w, struct coll *c, unsigned n)
{
	gasnet_coll_handle_t handle[COLLS + 1];
	unsigned i, form = below(w, 4);

	w->doing = "wait for collectives";
	for (i = 0; i < n; i++) handle[i] = c[i].handle;
	handle[n] = GASNET_COLL_INVALID_HANDLE;
	if (form == 0) gasnet_coll_wait_sync_all(handle, n + 1);
	if (form == 1)
		while (gasnet_coll_try_sync_all(handle, n + 1) != GASNET_OK) OK(gasnet_AMPoll());
	if (form == 2)
		for (i = n; i-- > 0;) {
			gasnet_coll_wait_sync(handle[i]);
			handle[i] = GASNET_COLL_INVALID_HANDLE;
		}
	while (form == 3) {
		gasnet_coll_wait_sync_some(handle, n);
		for (i = 0; i < n && handle[i] == GASNET_COLL_INVALID_HANDLE;) i++;
		if (i == n) break;
	}
	for (i = 0; i < n; i++) {
		HOLDS(handle[i] == GASNET_COLL_INVALID_HANDLE);
		look_at_coll(w, &c[i], i);
	}
}

#endif
