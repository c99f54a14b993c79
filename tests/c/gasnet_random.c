/* Random calls that are all right: puts, gets, scattered transfers, messages, barriers and collectives, each worker (a thread
 * of a node) with a region of its own in the segment of every node, so that what memory must hold is known at each time.
 *
 * gasnet_random SEED CALLS [THREADS [KIB]]: of each worker so many calls, with so many threads a node (GASNET_PAR), and
 * regions of so many KiB. The same seed makes the same calls; when they happen is another matter. */
#define _GNU_SOURCE
#include <gasnet.h>
#include <gasnet_vis.h>
#include <gasnet_coll.h>
#include <gasnet_tools.h>

#include "gasnet_random_transfers.h"
#include "gasnet_random_together.h"

enum { PHASE = 400 };

static unsigned long calls;
static pthread_barrier_t all_threads;

static void meet_threads(void)
{
	if (threads > 1) pthread_barrier_wait(&all_threads);
}

static void step(struct worker *w)
{
	switch (below(w, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		send(w);
		break;
	case 4:
	case 5:
		wait_for(w);
		break;
	case 6:
		gather_replies(w, 0);
		break;
	case 7:
		w->doing = "a poll";
		OK(gasnet_AMPoll());
		break;
	case 8:
		if (one_in(w, 3)) locks(w);
		else if (w->open < OPS) end_region(w);
		else if (one_in(w, 3)) begin_region(w);
		break;
	default:
		transfer(w);
	}
}

/* Everything that the worker owns at a node is what it should be. */
static void look_over(struct worker *w, gasnet_node_t node)
{
	byte *copy = (byte *)malloc(region);

	HOLDS(copy);
	w->doing = "look at all memory";
	gasnet_get_bulk(copy, node, at(w, node, 0), region);
	HOLDS(memcmp(copy, w->shadow[node], region) == 0);
	free(copy);
}

static void meet_nodes(struct worker *w, unsigned until)
{
	while (barriers_made < until || notified) barrier_step(w, 1);
}

#ifdef GASNET_SEGMENT_EVERYTHING
/* Before its address is told, the memory of this node may go, and other memory be there. */
static void new_memory(uint64_t how, size_t size)
{
	gasnet_node_t n;
	byte *p = base[me];

	if (p != NULL && how % 4 == 0) return;
	if (p == NULL) {
		p = map(size, MAP_PRIVATE);
	} else if (how % 4 == 1) {
		CHECK(munmap(p, size) == 0);
		CHECK(mmap(p, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == p);
	} else if (how % 4 == 2) {
		CHECK(madvise(p, size, MADV_DONTNEED) == 0);
	} else {
		byte *other = map(size, MAP_PRIVATE);

		CHECK(munmap(p, size) == 0);
		p = other;
	}
	base[me] = p;
	for (n = 0; n < nodes; n++)
		OK(gasnet_AMRequestShort2(n, HERE, (arg)((uintptr_t)p >> 32), (arg)(uintptr_t)p));
}
#endif

/* All memory anew, where nodes share all of it; the same on every node. */
static void memory_goes(struct worker *w, unsigned phase)
{
#ifdef GASNET_SEGMENT_EVERYTHING
	static unsigned moved;
	gasnet_node_t n;
	unsigned expected = 0;

	w->doing = "memory that goes";
	/* Nobody looks at the old one any more. */
	meet_threads();
	if (w->thread == 0) OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	meet_threads();
	for (n = 0; n < nodes; n++)
		if (phase == 0 || mix(seed + phase, n + 100) % 4 != 0) {
			expected++;
			memset(w->shadow[n], 0, region);
		}
	if (w->thread == 0) {
		moved += expected;
		new_memory(mix(seed + phase, me + 100), threads * nodes * region);
		GASNET_BLOCKUNTIL(__atomic_load_n(&known_bases, __ATOMIC_ACQUIRE) == moved);
		OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	}
	meet_threads();
#else
	(void)w, (void)phase;
#endif
}

static void *work(void *argument)
{
	struct worker *w = (struct worker *)argument;
	byte desk[DESKS * DESK];
	struct coll coll[COLLS];
	unsigned phase, phases = (unsigned)((calls + PHASE - 1) / PHASE), barriers = 0, i, colls = 0;
	gasnet_node_t n;

	w->desk = desk;
	w->open = OPS;
	w->doing = "teams";
	get_teams(w);
	for (phase = 0; phase < phases; phase++) {
		unsigned here = 1 + draw(&w->common) % COLLS, more = draw(&w->common) % 4;

		memory_goes(w, phase);
		for (i = 0; i < here; i++) start_coll(w, &coll[i], i, colls++);
		for (i = 0; i < PHASE && w->calls < calls; i++, w->calls++) {
			step(w);
			if (w->thread == 0 && one_in(w, 30) && barriers_made < barriers + more) barrier_step(w, 0);
		}
		if (one_in(w, 2)) gather_replies(w, 1);
		wait_for_all(w);
		gather_replies(w, 1);
		end_colls(w, coll, here);
		meet_threads();
		barriers += more + 1;
		if (w->thread == 0) {
			w->doing = "messages without reply";
			all_arrived();
			meet_nodes(w, barriers);
		}
		meet_threads();
		silent_end(w);
		for (n = 0; n < nodes; n++)
			if (phase + 1 == phases || one_in(w, 3)) look_over(w, n);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	gasnet_seginfo_t segment[NODES];
	pthread_t thread[THREADS];
	gasnet_node_t n;
	unsigned i;

	OK(gasnet_init(&argc, &argv));
	CHECK(argc > 2);
	seed = strtoull(argv[1], NULL, 0);
	calls = strtoul(argv[2], NULL, 0);
	threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
	region = (argc > 4 ? (size_t)atoi(argv[4]) : 256) * 1024;
	me = gasnet_mynode(), nodes = gasnet_nodes();
	CHECK(nodes <= NODES && threads >= 1 && threads <= THREADS && region >= 16384);
	OK(gasnet_attach(entries, (int)(sizeof entries / sizeof *entries), threads * nodes * region, 0));
	OK(gasnet_getSegmentInfo(segment, NODES));
	for (n = 0; n < nodes; n++) base[n] = (byte *)segment[n].addr;
	if (base[me] != NULL) memset(base[me], 0, threads * nodes * region);
	OK(gasnet_set_waitmode((int)(seed % 3)));
	for (i = 0; i < threads; i++) {
		struct worker *w = (struct worker *)calloc(1, sizeof *w);
		unsigned k;

		CHECK(w);
		workers[i] = w;
		w->thread = i, w->number = me * threads + i;
		w->state = mix(seed, 1000 + w->number) | 1;
		w->common = mix(seed, 999) | 1;
		for (n = 0; n < nodes; n++) {
			w->shadow[n] = (byte *)calloc(1, region);
			CHECK(w->shadow[n]);
		}
		for (k = 0; k < COLLS; k++) {
			coll_from[i][k] = (byte *)malloc((COLL_MOST + 8) * nodes * threads);
			coll_to[i][k] = (byte *)malloc((COLL_MOST + 8) * nodes * threads);
			CHECK(coll_from[i][k] && coll_to[i][k]);
		}
	}
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	if (threads > 1) {
		CHECK(pthread_barrier_init(&all_threads, NULL, threads) == 0);
		for (i = 0; i < threads; i++) CHECK(pthread_create(&thread[i], NULL, work, workers[i]) == 0);
		for (i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
	} else {
		work(workers[0]);
	}
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	printf("node %d: all right\n", (int)me);
	fflush(stdout);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
	return 0;
}
