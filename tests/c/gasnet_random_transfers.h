/* Random puts, gets, values, memset and scattered transfers of gasnet_random.c, and every way to wait for them. */
#ifndef GASNET_RANDOM_TRANSFERS_H
#define GASNET_RANDOM_TRANSFERS_H

#include "gasnet_random_model.h"

/* The operation is complete: a get brought what the node has, and wrote nothing else. */
static void finish(struct worker *w, struct op *op)
{
	struct memory *m = &op->memory;
	unsigned i;

	if (op->how == REGION) {
		for (i = 0; i < OPS; i++)
			if (w->op[i].how == INSIDE && &w->op[w->op[i].parent] == op) finish(w, &w->op[i]);
	}
	for (i = 0; i < op->count; i++) {
		struct piece *p = &op->piece[i];

		if (op->used) break;
		HOLDS(memcmp(p->here, w->shadow[op->remote.node] + p->there, p->len) == 0);
		if (!op->get) continue;
		if (m->kind == OWN)
			memcpy(w->shadow[me] + (p->here - at(w, me, 0)), p->here, p->len);
		else
			memset(p->here, m->edge, p->len);
	}
	if (op->get) HOLDS(is_all(m->all, m->size, (byte)m->edge));
	if (m->all) give_back(w, m);
	op->how = FREE;
	memset(&op->remote, 0, sizeof op->remote);
}

static struct op *fresh(struct worker *w)
{
	unsigned i;

	for (i = 0; i < OPS; i++)
		if (w->op[i].how == FREE) {
			struct op *op = &w->op[i];

			op->get = op->used = 0, op->count = 0;
			op->handle = GASNET_INVALID_HANDLE;
			memset(&op->remote, 0, sizeof op->remote);
			memset(&op->memory, 0, sizeof op->memory);
			return op;
		}
	return NULL;
}

/* An operation without a handle: complete, or one to wait for by implicit means. */
static void implicit(struct worker *w, struct op *op)
{
	op->how = w->open < OPS ? INSIDE : IMPLICIT;
	op->parent = w->open;
}

/* The pieces' new values are known from here on, and the copy of the region has them. */
static void put_seen(struct worker *w, struct op *op)
{
	unsigned i;

	for (i = 0; i < op->count; i++)
		memcpy(w->shadow[op->remote.node] + op->piece[i].there, op->piece[i].here, op->piece[i].len);
}

/* Local memory for the operation: of a put it has its values. */
static void local(struct worker *w, struct op *op, size_t room, size_t align)
{
	take(w, &op->memory, room, align, op->get ? 0 : 1);
	if (op->get || op->memory.kind == TABLE || op->memory.kind == ZEROS) return;
	fill(op->memory.at, room, draw(&w->state));
	if (op->memory.kind == OWN) memcpy(w->shadow[me] + op->memory.own.from, op->memory.at, room);
	seal(&op->memory);
}

static gasnet_node_t somebody(struct worker *w)
{
	return one_in(w, 5) ? me : below(w, nodes);
}

static void contiguous(struct worker *w, struct op *op, gasnet_node_t node)
{
	size_t len = length(w, region / 4), align = 1;
	int bulk = one_in(w, 2);
	unsigned form = below(w, 3);
	void *here, *there;

	if (!bulk)
		while (align < 8 && len % (align * 2) == 0) align *= 2;
	if (!find(w, &op->remote, node, len, align, !op->get)) return;
	/* As all ranges of operations under way it counts, so that the local one is another. */
	op->how = EXPLICIT;
	local(w, op, len, align);
	op->piece[0].there = op->remote.from, op->piece[0].here = op->memory.at, op->piece[0].len = len;
	op->count = 1;
	here = op->memory.at, there = at(w, node, op->remote.from);
	if (op->get) {
		w->doing = "get";
		if (form == 0 && bulk) gasnet_get_bulk(here, node, there, len);
		if (form == 0 && !bulk) gasnet_get(here, node, there, len);
		if (form == 1) op->handle = (bulk ? gasnet_get_nb_bulk : gasnet_get_nb)(here, node, there, len);
		if (form == 2) (bulk ? gasnet_get_nbi_bulk : gasnet_get_nbi)(here, node, there, len);
	} else {
		put_seen(w, op);
		w->doing = "put";
		if (form == 0 && bulk) gasnet_put_bulk(node, there, here, len);
		if (form == 0 && !bulk) gasnet_put(node, there, here, len);
		if (form == 1) op->handle = (bulk ? gasnet_put_nb_bulk : gasnet_put_nb)(node, there, here, len);
		if (form == 2) (bulk ? gasnet_put_nbi_bulk : gasnet_put_nbi)(node, there, here, len);
		if (!bulk && form != 0) {
			spoil(w, &op->memory);
			give_back(w, &op->memory);
			op->used = 1;
		}
	}
	if (form == 0) finish(w, op);
	if (form == 2) implicit(w, op);
}

static void fill_there(struct worker *w, struct op *op, gasnet_node_t node)
{
	size_t len = length(w, region / 4);
	int value = (int)draw(&w->state);
	unsigned form = below(w, 3);
	void *there;

	op->get = 0, op->used = 1;
	if (!find(w, &op->remote, node, len, 1, 1)) return;
	w->doing = "memset";
	op->how = EXPLICIT;
	there = at(w, node, op->remote.from);
	memset(w->shadow[node] + op->remote.from, value, len);
	if (form == 0) gasnet_memset(node, there, value, len);
	if (form == 1) op->handle = gasnet_memset_nb(node, there, value, len);
	if (form == 2) gasnet_memset_nbi(node, there, value, len);
	if (form == 0) finish(w, op);
	if (form == 2) implicit(w, op);
}

static gasnet_register_value_t known(struct worker *w, const struct range *r)
{
	gasnet_register_value_t value = 0;

	memcpy(&value, w->shadow[r->node] + r->from, r->to - r->from);
	return value;
}

static void values(struct worker *w, struct op *op, gasnet_node_t node)
{
	size_t len = 1 + below(w, 8);
	unsigned form = below(w, 3);
	gasnet_register_value_t value = (uint64_t)draw(&w->state) << 32 | draw(&w->state);
	void *there;

	if (!find(w, &op->remote, node, len, len == 2 || len == 4 || len == 8 ? len : 1, !op->get)) return;
	w->doing = "a value";
	op->how = EXPLICIT, op->used = 1;
	there = at(w, node, op->remote.from);
	if (op->get && form == 0) {
		HOLDS(gasnet_get_val(node, there, len) == known(w, &op->remote));
		finish(w, op);
		return;
	}
	if (op->get) {
		op->how = VALUE;
		op->value = gasnet_get_nb_val(node, there, len);
		op->get = 0;
		return;
	}
	memcpy(w->shadow[node] + op->remote.from, &value, len);
	if (form == 0) gasnet_put_val(node, there, value, len);
	if (form == 1) op->handle = gasnet_put_nb_val(node, there, value, len);
	if (form == 2) gasnet_put_nbi_val(node, there, value, len);
	if (form == 0) finish(w, op);
	if (form == 2) implicit(w, op);
}

/* ---- scattered ---- */

/* Cuts `total` into `n` parts, some of them empty. */
static void cut(struct worker *w, size_t total, unsigned n, size_t *len)
{
	unsigned i;

	for (i = 0; i + 1 < n; i++) {
		len[i] = one_in(w, 6) ? 0 : below(w, 2 * total / n + 1);
		if (len[i] > total) len[i] = total;
		total -= len[i];
	}
	len[n - 1] = total;
}

/* Where parts lie, with gaps, in any order; how much room they need. */
static size_t spread(struct worker *w, unsigned n, const size_t *len, size_t *where)
{
	size_t end = 0;
	unsigned order[PIECES], i;

	for (i = 0; i < n; i++) {
		unsigned k = below(w, i + 1);

		order[i] = order[k], order[k] = i;
	}
	for (i = 0; i < n; i++) {
		end += one_in(w, 2) ? 0 : below(w, 40);
		where[order[i]] = end;
		end += len[order[i]];
	}
	return end;
}

static void pair(struct op *op, unsigned a, const size_t *a_len, const size_t *a_at, unsigned b, const size_t *b_len,
		 const size_t *b_at)
{
	size_t i = 0, j = 0, done_i = 0, done_j = 0;

	op->count = 0;
	for (;;) {
		size_t n;

		while (i < a && done_i == a_len[i]) i++, done_i = 0;
		while (j < b && done_j == b_len[j]) j++, done_j = 0;
		if (i == a || j == b) return;
		n = a_len[i] - done_i < b_len[j] - done_j ? a_len[i] - done_i : b_len[j] - done_j;
		op->piece[op->count].there = op->remote.from + a_at[i] + done_i;
		op->piece[op->count].here = op->memory.at + b_at[j] + done_j;
		op->piece[op->count++].len = n;
		done_i += n, done_j += n;
	}
}

#define LISTED(name, how_it_waits, here_args, there_args)                                                       \
	if (op->get && form == 0) gasnet_get##name##_bulk here_args;                                             \
	if (op->get && form == 1) op->handle = gasnet_get##name##_nb_bulk here_args;                             \
	if (op->get && form == 2) gasnet_get##name##_nbi_bulk here_args;                                         \
	if (!op->get && form == 0) gasnet_put##name##_bulk there_args;                                           \
	if (!op->get && form == 1) op->handle = gasnet_put##name##_nb_bulk there_args;                           \
	if (!op->get && form == 2) gasnet_put##name##_nbi_bulk there_args

static void lists(struct worker *w, struct op *op, gasnet_node_t node)
{
	unsigned a, b, i, form = below(w, 3), indexed = one_in(w, 2);
	size_t a_len[PIECES], b_len[PIECES], a_at[PIECES], b_at[PIECES], a_room, b_room, dst_len = 0, src_len = 0;
	gasnet_memvec_t there[PIECES], here[PIECES];
	void *to[PIECES], *from[PIECES];

	if (indexed) {
		unsigned p = 1 + below(w, 6), q = 1 + below(w, 6), k = 1 + below(w, 9);
		size_t unit = below(w, one_in(w, 8) ? 3000 : 40);

		a = q * k, b = p * k;
		for (i = 0; i < a; i++) a_len[i] = unit * p;
		for (i = 0; i < b; i++) b_len[i] = unit * q;
		dst_len = unit * p, src_len = unit * q;
	} else {
		size_t total = length(w, region / 8);

		a = 1 + below(w, 40), b = 1 + below(w, 40);
		cut(w, total, a, a_len);
		cut(w, total, b, b_len);
	}
	a_room = spread(w, a, a_len, a_at), b_room = spread(w, b, b_len, b_at);
	if (a_room > region / 2 || !find(w, &op->remote, node, a_room, 1, !op->get)) return;
	op->how = EXPLICIT;
	local(w, op, b_room, 1);
	pair(op, a, a_len, a_at, b, b_len, b_at);
	for (i = 0; i < a; i++) {
		there[i].addr = to[i] = at(w, node, op->remote.from + a_at[i]);
		there[i].len = a_len[i];
	}
	for (i = 0; i < b; i++) here[i].addr = from[i] = op->memory.at + b_at[i], here[i].len = b_len[i];
	if (!op->get) put_seen(w, op);
	w->doing = indexed ? "indexed" : "vector";
	if (indexed) {
		LISTED(i, form, (b, from, src_len, node, a, to, dst_len), (node, a, to, dst_len, b, from, src_len));
	} else {
		LISTED(v, form, (b, here, node, a, there), (node, a, there, b, here));
	}
	if (form == 0) finish(w, op);
	if (form == 2) implicit(w, op);
}

static void strided(struct worker *w, struct op *op, gasnet_node_t node)
{
	size_t levels = below(w, 4), count[4], there[3] = { 0, 0, 0 }, here[3] = { 0, 0, 0 }, a_room, b_room, i, all = 1;
	unsigned form = below(w, 3);
	byte *to, *from;

	count[0] = one_in(w, 12) ? 0 : 1 + below(w, one_in(w, 8) ? 3000 : 60);
	a_room = b_room = count[0];
	for (i = 0; i < levels; i++) {
		count[i + 1] = one_in(w, 20) ? 0 : 1 + below(w, 5);
		all *= count[i + 1];
		there[i] = a_room + (one_in(w, 2) ? 0 : below(w, 30));
		here[i] = b_room + (one_in(w, 2) ? 0 : below(w, 30));
		if (count[i + 1] == 0) continue;
		a_room += (count[i + 1] - 1) * there[i], b_room += (count[i + 1] - 1) * here[i];
	}
	if (a_room > region / 2 || b_room > region / 2) return;
	if (!find(w, &op->remote, node, a_room, 1, !op->get)) return;
	op->how = EXPLICIT;
	local(w, op, b_room, 1);
	to = at(w, node, op->remote.from), from = op->memory.at;
	for (i = 0; count[0] > 0 && i < all; i++) {
		size_t rest = i, l, a = 0, b = 0;

		for (l = 0; l < levels; l++) {
			a += rest % count[l + 1] * there[l], b += rest % count[l + 1] * here[l];
			rest /= count[l + 1];
		}
		op->piece[op->count].there = op->remote.from + a;
		op->piece[op->count].here = from + b;
		op->piece[op->count++].len = count[0];
	}
	if (!op->get) put_seen(w, op);
	w->doing = "strided";
	LISTED(s, form, (from, here, node, to, there, count, levels), (node, to, there, from, here, count, levels));
	if (form == 0) finish(w, op);
	if (form == 2) implicit(w, op);
}

static void transfer(struct worker *w)
{
	struct op *op = fresh(w);
	gasnet_node_t node = somebody(w);

	if (op == NULL) return;
	op->get = one_in(w, 2);
	switch (below(w, 10)) {
	case 0:
		fill_there(w, op, node);
		break;
	case 1:
	case 2:
		values(w, op, node);
		break;
	case 3:
		lists(w, op, node);
		break;
	case 4:
		strided(w, op, node);
		break;
	default:
		contiguous(w, op, node);
	}
}

/* ---- waiting ---- */

static void begin_region(struct worker *w)
{
	struct op *op = fresh(w);

	if (op == NULL || w->open < OPS) return;
	w->doing = "begin an access region";
	op->used = 1, op->how = REGION;
	w->open = (unsigned)(op - w->op);
	gasnet_begin_nbi_accessregion();
}

static void end_region(struct worker *w)
{
	if (w->open == OPS) return;
	w->doing = "end an access region";
	w->op[w->open].handle = gasnet_end_nbi_accessregion();
	w->open = OPS;
}

static int has_handle(struct worker *w, unsigned i)
{
	return w->op[i].how == EXPLICIT || (w->op[i].how == REGION && i != w->open);
}

/* Some of the operations with handles, all of them if `most`, with invalid handles in between. */
static void some(struct worker *w, int most)
{
	gasnet_handle_t handle[2 * OPS];
	unsigned who[2 * OPS], n = 0, i, form = below(w, 6), left = 0;

	for (i = 0; i < OPS; i++) {
		unsigned k;

		if (!has_handle(w, i) || (!most && one_in(w, 2))) continue;
		if (one_in(w, 4)) who[n] = OPS, handle[n++] = GASNET_INVALID_HANDLE;
		k = below(w, n + 1);
		who[n] = who[k], handle[n] = handle[k], n++;
		who[k] = i, handle[k] = w->op[i].handle;
	}
	w->doing = "wait for some";
	if (most) form = 0;
	if (form == 0) gasnet_wait_syncnb_all(handle, n);
	if (form == 1) gasnet_wait_syncnb_some(handle, n);
	if (form == 2 && gasnet_try_syncnb_all(handle, n) == GASNET_OK) form = 0;
	if (form == 3 && gasnet_try_syncnb_some(handle, n) != GASNET_OK) {
		for (i = 0; i < n; i++) HOLDS(who[i] == OPS || handle[i] == w->op[who[i]].handle);
		return;
	}
	if (form == 4)
		for (i = 0; i < n; i++) {
			gasnet_wait_syncnb(handle[i]);
			handle[i] = GASNET_INVALID_HANDLE;
		}
	if (form == 5)
		for (i = 0; i < n; i++)
			if ((one_in(w, 2) ? gasnet_try_syncnb : gasnet_try_syncnb_nopoll)(handle[i]) == GASNET_OK)
				handle[i] = GASNET_INVALID_HANDLE;
	for (i = 0; i < n; i++) {
		if (who[i] == OPS) {
			HOLDS(handle[i] == GASNET_INVALID_HANDLE);
			continue;
		}
		left += handle[i] != GASNET_INVALID_HANDLE;
		if (handle[i] == GASNET_INVALID_HANDLE)
			finish(w, &w->op[who[i]]);
		else
			HOLDS(handle[i] == w->op[who[i]].handle);
	}
	if (form == 0 || form == 4) HOLDS(left == 0);
	if (form == 1 && n > 0) HOLDS(left < n);
}

static void implicit_ones(struct worker *w, unsigned form)
{
	/* 0: all; 1: puts; 2: gets; 3 to 5 the same, without waiting. */
	int done = 1;
	unsigned i;

	if (w->open < OPS) return;
	w->doing = "wait for implicit operations";
	if (form == 0) gasnet_wait_syncnbi_all();
	if (form == 1) gasnet_wait_syncnbi_puts();
	if (form == 2) gasnet_wait_syncnbi_gets();
	if (form == 3) done = gasnet_try_syncnbi_all() == GASNET_OK;
	if (form == 4) done = gasnet_try_syncnbi_puts() == GASNET_OK;
	if (form == 5) done = gasnet_try_syncnbi_gets() == GASNET_OK;
	for (i = 0; done && i < OPS; i++)
		if (w->op[i].how == IMPLICIT && (form % 3 == 0 || w->op[i].get == (form % 3 == 2))) finish(w, &w->op[i]);
}

static void values_that_came(struct worker *w, int all)
{
	unsigned i, first = below(w, OPS);

	w->doing = "wait for a value";
	for (i = 0; i < OPS; i++) {
		struct op *op = &w->op[(first + i) % OPS];

		if (op->how != VALUE || (!all && one_in(w, 2))) continue;
		HOLDS(gasnet_wait_syncnb_valget(op->value) == known(w, &op->remote));
		finish(w, op);
	}
}

static void wait_for(struct worker *w)
{
	switch (below(w, 4)) {
	case 0:
		values_that_came(w, 0);
		break;
	case 1:
		implicit_ones(w, below(w, 6));
		break;
	default:
		some(w, 0);
	}
}

/* All operations, so that none is left. */
static void wait_for_all(struct worker *w)
{
	end_region(w);
	values_that_came(w, 1);
	implicit_ones(w, 0);
	some(w, 1);
}

#endif
