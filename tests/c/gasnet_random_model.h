/* What gasnet_random.c knows of memory: for each worker (a thread of a node) a copy of what its region in the segment of
 * each node must hold, which ranges its operations use, and local memory of every kind. */
#ifndef GASNET_RANDOM_MODEL_H
#define GASNET_RANDOM_MODEL_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gasnet_check.h"

enum { NODES = 8, THREADS = 4, OPS = 32, SLOTS = 32, PIECES = 128, DESKS = 8, DESK = 6000 };
enum { EDGE = 0xd7, USED = 0xee };

typedef unsigned char byte;

static gasnet_node_t me, nodes;
static unsigned threads;
static size_t region;
static uint64_t seed;
/* Where each node has the regions of all workers. */
static byte *base[NODES];

/* ---- numbers ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = a * 0x9e3779b97f4a7c15ull + b + 0x2545f4914f6cdd1dull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* What `key` stands for. */
static void fill(byte *at, size_t len, uint64_t key)
{
	uint64_t x = key;
	size_t i;

	for (i = 0; i < len; i += 8) {
		size_t n = len - i < 8 ? len - i : 8;

		x = x * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(at + i, &x, n);
	}
}

static int is_filled(const byte *at, size_t len, uint64_t key)
{
	uint64_t x = key;
	size_t i;

	for (i = 0; i < len; i += 8) {
		size_t n = len - i < 8 ? len - i : 8;

		x = x * 6364136223846793005ull + 1442695040888963407ull;
		if (memcmp(at + i, &x, n) != 0) return 0;
	}
	return 1;
}

static int is_all(const byte *at, size_t len, byte what)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (at[i] != what) return 0;
	return 1;
}

/* ---- workers ---- */

struct range {
	gasnet_node_t node;
	size_t from, to;
	int write;
};

enum kind { HEAP, DESKTOP, OWN, MAPPED, SHARED, READ_ONLY, TABLE, ZEROS, KINDS };

/* Local memory: `room` bytes at `at`; what else is between `all` and its end has the value `edge`. */
struct memory {
	enum kind kind;
	byte *all, *at;
	size_t size, room;
	int edge, desk;
	struct range own;
};

struct piece {
	size_t there;
	byte *here;
	size_t len;
};

enum how { FREE, EXPLICIT, IMPLICIT, INSIDE, VALUE, REGION };

/* An operation that is not synchronised. */
struct op {
	enum how how;
	int get, used;
	unsigned parent;
	gasnet_handle_t handle;
	gasnet_valget_handle_t value;
	struct range remote;
	struct memory memory;
	unsigned count;
	struct piece piece[PIECES];
};

/* A message whose reply has not come, or one without reply that may not have arrived. */
struct message {
	int busy, silent, done;
	uint32_t token;
	struct range there, back;
	struct memory memory;
};

struct worker {
	uint64_t state, common;
	unsigned thread, number;
	unsigned long calls;
	const char *doing;
	byte *shadow[NODES];
	struct op op[OPS];
	struct message message[SLOTS];
	/* The operation that stands for the open access region, or OPS. */
	unsigned open;
	byte *desk;
	unsigned desks;
};

static struct worker *workers[THREADS];

#define HOLDS(condition)                                                                                     \
	do {                                                                                                  \
		if (!(condition)) {                                                                           \
			fprintf(stderr, "%s:%d: node %d thread %u, call %lu (%s): not so: %s\n", __FILE__, __LINE__, \
				(int)me, w->thread, w->calls, w->doing, #condition);                            \
			fflush(NULL);                                                                         \
			gasnet_exit(1);                                                                       \
		}                                                                                             \
	} while (0)

/* xorshift64* */
static uint32_t draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 0x2545f4914f6cdd1dull) >> 32);
}

static unsigned below(struct worker *w, size_t n)
{
	return (unsigned)(draw(&w->state) % n);
}

static int one_in(struct worker *w, unsigned n)
{
	return below(w, n) == 0;
}

/* Where worker `number` has its region at a node. */
static byte *place(gasnet_node_t node, unsigned number)
{
	return base[node] + number * region;
}

static byte *at(struct worker *w, gasnet_node_t node, size_t offset)
{
	return place(node, w->number) + offset;
}

/* Mostly small, often beside a limit of a protocol, seldom long. */
static size_t length(struct worker *w, size_t most)
{
	static const size_t limits[] = { 8, 64, 256, 1024, 1976, 1984, 2040, 2048, 4096, 8192, 65536, 1 << 20 };
	size_t len;

	switch (below(w, 8)) {
	case 0:
		len = below(w, 3);
		break;
	case 1:
	case 2:
		len = limits[below(w, sizeof limits / sizeof *limits)] + below(w, 9) - 4;
		break;
	case 3:
		len = one_in(w, 8) ? below(w, most + 1) : below(w, 70000);
		break;
	case 4:
		len = below(w, 6000);
		break;
	default:
		len = below(w, 200);
	}
	return len > most ? most : len;
}

/* ---- which ranges are in use ---- */

static int meet(const struct range *a, const struct range *b)
{
	return a->from < a->to && b->from < b->to && a->node == b->node && a->from < b->to && b->from < a->to
	       && (a->write || b->write);
}

static int is_free(struct worker *w, const struct range *r)
{
	unsigned i;

	for (i = 0; i < OPS; i++)
		if (w->op[i].how != FREE && (meet(r, &w->op[i].remote) || meet(r, &w->op[i].memory.own))) return 0;
	for (i = 0; i < SLOTS; i++) {
		const struct message *m = &w->message[i];

		if (m->busy && (meet(r, &m->there) || meet(r, &m->back) || meet(r, &m->memory.own))) return 0;
	}
	return 1;
}

/* Looks for `len` bytes in the own region of a node that nobody uses. */
static int find(struct worker *w, struct range *r, gasnet_node_t node, size_t len, size_t align, int write)
{
	int tries;

	for (tries = 0; tries < 6; tries++) {
		struct range found = { node, 0, 0, write };

		found.from = one_in(w, 10) ? region - len : below(w, region - len + 1);
		found.from -= found.from % align;
		found.to = found.from + len;
		if (!is_free(w, &found)) continue;
		*r = found;
		return 1;
	}
	return 0;
}

/* ---- local memory ---- */

#define T16(x) (x), (x) ^ 0x11, (x) ^ 0x35, (x) ^ 0x9a, (x) ^ 0x71, (x) ^ 0x0f, (x) ^ 0xe2, (x) ^ 0x44, \
	       (x) ^ 0x5b, (x) ^ 0xc6, (x) ^ 0x28, (x) ^ 0xb3, (x) ^ 0x87, (x) ^ 0xf9, (x) ^ 0x60, (x) ^ 0x1d
#define T256(x) T16(x), T16(x + 3), T16(x + 5), T16(x + 7), T16(x + 17), T16(x + 19), T16(x + 31), T16(x + 37), \
		T16(x + 41), T16(x + 43), T16(x + 47), T16(x + 53), T16(x + 59), T16(x + 61), T16(x + 2), T16(x + 4)
/* Of the program's file, not to be written. */
static const byte table[] __attribute__((aligned(64))) = { T256(1), T256(9), T256(20), T256(33), T256(40), T256(55), T256(66), T256(77),
			      T256(80), T256(91), T256(100), T256(11), T256(12), T256(13), T256(14), T256(15),
			      T256(8), T256(29), T256(60), T256(73), T256(42), T256(51), T256(63), T256(70) };

static byte *map(size_t size, int flags)
{
	byte *p = (byte *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static byte *aligned(byte *p, size_t align)
{
	return (byte *)(((uintptr_t)p + align - 1) / align * align);
}

/* Memory of `room` bytes of some kind: a destination (`source` 0), a source of anything (1), or one to be filled (2). */
static void take(struct worker *w, struct memory *m, size_t room, size_t align, int source)
{
	size_t page = 4096;

	memset(m, 0, sizeof *m);
	m->kind = (enum kind)below(w, source == 1 ? KINDS : source ? TABLE : READ_ONLY);
	m->room = room, m->edge = EDGE;
	if (m->kind == DESKTOP && (room + 64 > DESK || w->desks == (1u << DESKS) - 1)) m->kind = HEAP;
	if (m->kind == TABLE && room > sizeof table) m->kind = READ_ONLY;
	if (m->kind == OWN && !find(w, &m->own, me, room, align, 1)) m->kind = HEAP;
	switch (m->kind) {
	case HEAP:
		m->size = room + 64;
		m->all = (byte *)malloc(m->size);
		CHECK(m->all);
		m->at = aligned(m->all + 16 + below(w, 8), align);
		break;
	case DESKTOP:
		while (w->desks >> m->desk & 1) m->desk++;
		w->desks |= 1u << m->desk;
		m->all = w->desk + m->desk * DESK, m->size = DESK;
		m->at = aligned(m->all + 16 + below(w, 8), align);
		break;
	case OWN:
		m->at = at(w, me, m->own.from), m->all = m->at, m->size = 0;
		return;
	case TABLE:
		m->at = (byte *)(uintptr_t)table + below(w, sizeof table - room + 1) / align * align;
		m->all = m->at, m->size = 0;
		return;
	default:
		/* Up to the end of its last page, after which there is nothing. */
		m->size = (room + align + 2 * page - 1) / page * page;
		m->all = map(m->size + page, m->kind == SHARED ? MAP_SHARED : MAP_PRIVATE);
		CHECK(mprotect(m->all + m->size, page, PROT_NONE) == 0);
		m->at = m->all + (m->size - room) / align * align;
		if (m->kind == ZEROS || (source == 0 && one_in(w, 2))) {
			m->edge = 0;
			return;
		}
	}
	memset(m->all, m->edge, m->size);
}

/* A source that is filled is ready. */
static void seal(struct memory *m)
{
	if (m->kind == READ_ONLY) CHECK(mprotect(m->all, m->size, PROT_READ) == 0);
}

/* Something else is in a source that the library may not look at any more. */
static void spoil(struct worker *w, struct memory *m)
{
	if (m->kind == READ_ONLY || m->kind == TABLE || m->kind == ZEROS) return;
	memset(m->at, USED, m->room);
	if (m->kind == OWN) memset(w->shadow[me] + m->own.from, USED, m->room);
}

static void give_back(struct worker *w, struct memory *m)
{
	switch (m->kind) {
	case HEAP:
		free(m->all);
		break;
	case DESKTOP:
		w->desks &= ~(1u << m->desk);
		break;
	case OWN:
	case TABLE:
		break;
	default:
		CHECK(munmap(m->all, m->size + 4096) == 0);
	}
	memset(m, 0, sizeof *m);
}

#endif
