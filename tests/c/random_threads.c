/* Random calls of several threads on one interface, many of them wrong: queues that are freed while another thread waits on
 * them, descriptors and entries that are unlinked while others use them, the interface closed while calls are under way.
 * No call hangs or crashes, each gives a code of its own, nothing outside of what descriptors name is written.
 *
 * random_threads CALLS SEED [THREADS [ROUNDS]]: in each round the interface is opened, each thread makes so many calls, and
 * the interface is closed under the threads, which go on until they see it. */
#include "check.h"

#include <catamount/cnos_mpi_os.h>
#include <pthread.h>
#include <stdint.h>
#include <sched.h>
#include <sys/mman.h>

#define MOST 8
#define BLOCK ((size_t)8192)
#define BLOCKS 32
#define HANDLES 64
#define QUEUES 6
#define DATA 0xa5
#define CANARY 0x5a

struct thread {
	uint64_t state;
	unsigned number;
	unsigned long done;
	int over;
	const char *doing;
};

static unsigned ranks, me, threads;
static ptl_handle_ni_t ni;
static unsigned char *memory;
static ptl_process_id_t ids[16];
/* Shared by all threads, with no lock but that of each word. */
static ptl_handle_any_t handles[HANDLES];
static ptl_handle_eq_t queues[QUEUES];
static unsigned long calls, events;
static int closing;
static struct thread all[MOST];

/* xorshift64* */
static uint32_t any(struct thread *t)
{
	t->state ^= t->state >> 12;
	t->state ^= t->state << 25;
	t->state ^= t->state >> 27;
	return (uint32_t)((t->state * 0x2545f4914f6cdd1dull) >> 32);
}

static unsigned below(struct thread *t, unsigned n)
{
	return any(t) % n;
}

static int one_in(struct thread *t, unsigned n)
{
	return below(t, n) == 0;
}

static ptl_handle_any_t handle(struct thread *t)
{
	ptl_handle_any_t h = __atomic_load_n(&handles[below(t, HANDLES)], __ATOMIC_RELAXED);

	return one_in(t, 30) ? h + (1u << below(t, 32)) : h;
}

static ptl_handle_eq_t queue(struct thread *t)
{
	if (one_in(t, 30))
		return handle(t);
	return one_in(t, 6) ? PTL_EQ_NONE : __atomic_load_n(&queues[below(t, QUEUES)], __ATOMIC_RELAXED);
}

static void keep(struct thread *t, ptl_handle_any_t h)
{
	__atomic_store_n(&handles[below(t, HANDLES)], h, __ATOMIC_RELAXED);
}

static ptl_md_t descriptor(struct thread *t)
{
	size_t from = below(t, BLOCK), length = below(t, (unsigned)(BLOCK - from)) + 1;
	unsigned options = below(t, 4) | PTL_MD_TRUNCATE | (one_in(t, 2) ? PTL_MD_MANAGE_REMOTE : 0) |
			   (one_in(t, 4) ? PTL_MD_ACK_DISABLE : 0) |
			   (one_in(t, 3) ? PTL_MD_EVENT_START_DISABLE : 0);
	ptl_md_t md = describe(memory + 2 * below(t, BLOCKS / 2) * BLOCK + from, length, options, queue(t));

	md.threshold = one_in(t, 2) ? PTL_MD_THRESH_INF : (int)below(t, 5);
	if (one_in(t, 40))
		md.options = any(t);
	return md;
}

/* A call gives one of these codes, or says that the library was shut down. Of an interface that is closed only the calls
 * that take an interface know; to the others it is an object that is not there. */
static int among(struct thread *t, int code, const int *codes, int count)
{
	int i;

	if (code == PTL_OK)
		return 1;
	if (code == PTL_NO_INIT)
		return 0;
	for (i = 0; i < count; i++)
		if (code == codes[i])
			return 0;
	fprintf(stderr, "rank %u thread %u: %s gave %s\n", me, t->number, t->doing, PtlErrorStr((unsigned)code));
	exit(1);
}

#define AMONG(code, ...)                                                                  \
	among(t, code, (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)))

static void seen(const ptl_event_t *e)
{
	__atomic_fetch_add(&events, 1, __ATOMIC_RELAXED);
	CHECK((unsigned)e->type <= PTL_EVENT_UNLINK);
	CHECK(e->mlength <= e->rlength);
}

/* Waits for ever only where another thread is sure to free the queue, or close the interface. */
static void look(struct thread *t)
{
	ptl_handle_eq_t several[QUEUES];
	ptl_event_t e;
	int n = 1 + (int)below(t, QUEUES), which = -1, i, code;

	for (i = 0; i < n; i++)
		several[i] = queue(t);
	memset(&e, 0, sizeof e);
	switch (below(t, 6)) {
	case 0:
		t->doing = "PtlEQPoll";
		code = PtlEQPoll(several, n, below(t, 3), &e, &which);
		break;
	case 1:
		t->doing = "PtlEQPoll for ever";
		code = PtlEQPoll(several, n, PTL_TIME_FOREVER, &e, &which);
		break;
	case 2:
		t->doing = "PtlEQWait";
		code = PtlEQWait(several[0], &e);
		break;
	case 3:
		t->doing = "PtlEQPeek";
		code = PtlEQPeek(several[0], &e);
		break;
	default:
		t->doing = "PtlEQGet";
		code = PtlEQGet(several[0], &e);
	}
	if (code == PTL_OK || code == PTL_EQ_DROPPED)
		seen(&e);
	AMONG(code, PTL_EQ_EMPTY, PTL_EQ_DROPPED, PTL_EQ_INVALID);
}

static void make(struct thread *t)
{
	ptl_handle_any_t a = PTL_INVALID_HANDLE, b = PTL_INVALID_HANDLE;
	ptl_unlink_t unlink = (ptl_unlink_t)below(t, 2);
	ptl_ins_pos_t where = (ptl_ins_pos_t)below(t, 2);
	ptl_match_bits_t bits = below(t, 4), ignored = one_in(t, 2) ? ~0ull : 0;
	int made;

	switch (below(t, 6)) {
	case 0:
		t->doing = "PtlMEAttach";
		made = AMONG(PtlMEAttach(ni, below(t, 4), anyone, bits, ignored, unlink, where, &a), PTL_NI_INVALID,
			     PTL_NO_SPACE);
		break;
	case 1:
		t->doing = "PtlMEInsert";
		made = AMONG(PtlMEInsert(handle(t), anyone, bits, ignored, unlink, where, &a), PTL_ME_INVALID,
			     PTL_NO_SPACE);
		break;
	case 2:
		t->doing = "PtlMDAttach";
		made = AMONG(PtlMDAttach(handle(t), descriptor(t), unlink, &a), PTL_ME_INVALID, PTL_ME_IN_USE,
			     PTL_MD_ILLEGAL, PTL_EQ_INVALID, PTL_NO_SPACE, PTL_SEGV);
		break;
	case 3:
		t->doing = "PtlMDBind";
		made = AMONG(PtlMDBind(ni, descriptor(t), unlink, &a), PTL_NI_INVALID, PTL_MD_ILLEGAL, PTL_EQ_INVALID,
			     PTL_NO_SPACE, PTL_SEGV);
		break;
	case 4:
		t->doing = "PtlMEMDPost";
		made = AMONG(PtlMEMDPost(ni, handle(t), anyone, bits, ignored, unlink, where, descriptor(t), unlink, &a,
					 &b, queue(t)),
			     PTL_NI_INVALID, PTL_ME_INVALID, PTL_MD_ILLEGAL, PTL_EQ_INVALID, PTL_NO_SPACE, PTL_SEGV,
			     PTL_MD_NO_UPDATE);
		break;
	default:
		t->doing = "PtlMEMDAttach";
		made = AMONG(PtlMEMDAttach(ni, below(t, 4), anyone, bits, ignored, unlink, where, descriptor(t), unlink,
					   &a, &b),
			     PTL_NI_INVALID, PTL_MD_ILLEGAL, PTL_EQ_INVALID, PTL_NO_SPACE, PTL_SEGV);
	}
	if (made) {
		keep(t, a);
		if (b != PTL_INVALID_HANDLE)
			keep(t, b);
	}
}

static void move(struct thread *t)
{
	ptl_process_id_t to = ids[below(t, ranks)];
	ptl_match_bits_t bits = below(t, 4);
	unsigned portal = below(t, 4);

	switch (below(t, 4)) {
	case 0:
		t->doing = "PtlGet";
		AMONG(PtlGet(handle(t), to, portal, 0, bits, 0), PTL_MD_INVALID, PTL_MD_ILLEGAL, PTL_NO_SPACE);
		break;
	case 1:
		t->doing = "PtlGetPut";
		AMONG(PtlGetPut(handle(t), handle(t), to, portal, 0, bits, 0, any(t)), PTL_MD_INVALID, PTL_MD_ILLEGAL,
		      PTL_NO_SPACE);
		break;
	default:
		t->doing = "PtlPut";
		AMONG(PtlPut(handle(t), (ptl_ack_req_t)below(t, 2), to, portal, 0, bits, 0, any(t)), PTL_MD_INVALID,
		      PTL_MD_ILLEGAL, PTL_NO_SPACE);
	}
}

static void renew(struct thread *t)
{
	ptl_handle_eq_t eq = PTL_EQ_NONE, *place = &queues[below(t, QUEUES)];

	/* So that no queue that is in use is forgotten. */
	t->doing = "PtlEQAlloc";
	if (!AMONG(PtlEQAlloc(ni, 1 + below(t, 64), PTL_EQ_HANDLER_NONE, &eq), PTL_NI_INVALID, PTL_NO_SPACE))
		return;
	t->doing = "PtlEQFree";
	AMONG(PtlEQFree(__atomic_exchange_n(place, eq, __ATOMIC_RELAXED)), PTL_EQ_INVALID);
}

static void end(struct thread *t)
{
	switch (below(t, 3)) {
	case 0:
		t->doing = "PtlMEUnlink";
		AMONG(PtlMEUnlink(handle(t)), PTL_ME_INVALID, PTL_ME_IN_USE);
		break;
	case 1:
		t->doing = "PtlMDUnlink";
		AMONG(PtlMDUnlink(handle(t)), PTL_MD_INVALID, PTL_MD_IN_USE);
		break;
	default:
		renew(t);
	}
}

static void ask(struct thread *t)
{
	ptl_md_t old = describe(NULL, 0, 0, PTL_EQ_NONE), new = descriptor(t);
	ptl_sr_value_t value;
	ptl_handle_any_t h;

	switch (below(t, 4)) {
	case 0:
		t->doing = "PtlNIStatus";
		AMONG(PtlNIStatus(ni, below(t, 31), &value), PTL_NI_INVALID, PTL_SR_INDEX_INVALID);
		break;
	case 1:
		t->doing = "PtlNIHandle";
		AMONG(PtlNIHandle(handle(t), &h), PTL_HANDLE_INVALID);
		break;
	case 2:
		t->doing = "PtlMDUpdate of nothing";
		AMONG(PtlMDUpdate(handle(t), &old, NULL, PTL_EQ_NONE), PTL_MD_INVALID);
		break;
	default:
		t->doing = "PtlMDUpdate";
		AMONG(PtlMDUpdate(handle(t), NULL, &new, queue(t)), PTL_MD_INVALID, PTL_MD_ILLEGAL, PTL_EQ_INVALID,
		      PTL_MD_NO_UPDATE, PTL_NO_SPACE, PTL_SEGV);
	}
}

static void step(struct thread *t, int waits)
{
	switch (below(t, 8)) {
	case 0:
	case 1:
		make(t);
		break;
	case 2:
	case 3:
		move(t);
		break;
	case 4:
	case 5:
		if (waits)
			look(t);
		break;
	case 6:
		end(t);
		break;
	default:
		ask(t);
	}
}

static void *work(void *argument)
{
	struct thread *t = argument;
	ptl_sr_value_t value;

	/* The second part: the interface goes away under it. */
	while (!__atomic_load_n(&closing, __ATOMIC_RELAXED) || PtlNIStatus(ni, 0, &value) == PTL_OK) {
		step(t, 1);
		__atomic_fetch_add(&t->done, 1, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&t->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void open_it(uint64_t seed, unsigned round)
{
	unsigned i;

	if (round > 0) {
		OK(PtlSetRank(PTL_INVALID_HANDLE, (unsigned)-1, (unsigned)-1));
		OK(PtlNIInit(tested_interface(), PTL_PID_ANY, NULL, NULL, &ni));
	}
	OK(PtlGetRank(ni, &me, &ranks));
	if (ranks > 16)
		ranks = 16;
	for (i = 0; i < ranks; i++)
		OK(PtlGetRankId(ni, i, &ids[i]));
	for (i = 0; i < HANDLES; i++)
		handles[i] = PTL_INVALID_HANDLE;
	for (i = 0; i < QUEUES; i++)
		OK(PtlEQAlloc(ni, 1u << i, PTL_EQ_HANDLER_NONE, &queues[i]));
	OK(PtlACEntry(ni, 0, anyone, PTL_UID_ANY, PTL_JID_ANY, PTL_PT_INDEX_ANY));
	closing = 0;
	for (i = 0; i <= threads; i++) {
		memset(&all[i], 0, sizeof all[i]);
		all[i].number = i;
		all[i].state = (seed * 1000003 + me * 7919 + i * 104729 + round * 15485863) | 1;
	}
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 4 ? (unsigned)atoi(argv[4]) : 2, round, i;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	pthread_t id[MOST];
	size_t at;

	calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
	threads = argc > 3 ? (unsigned)atoi(argv[3]) : 3;
	CHECK(threads >= 1 && threads < MOST);
	memory = mmap(NULL, BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (i = 0; i < BLOCKS; i++)
		memset(memory + i * BLOCK, i % 2 ? CANARY : DATA, BLOCK);
	ni = open_default();
	for (round = 0; round < rounds; round++) {
		int enough;

		open_it(seed, round);
		cnos_barrier();
		for (i = 0; i < threads; i++)
			CHECK(pthread_create(&id[i], NULL, work, &all[i]) == 0);
		/* This thread never waits, and renews the queues that the others wait on. */
		do {
			step(&all[threads], 0);
			if (one_in(&all[threads], 4))
				renew(&all[threads]);
			for (enough = 1, i = 0; i < threads; i++)
				enough &= __atomic_load_n(&all[i].done, __ATOMIC_RELAXED) >= calls;
		} while (!enough);
		if (one_in(&all[threads], 2))
			__atomic_store_n(&closing, 1, __ATOMIC_RELAXED);
		if (round + 1 == rounds && one_in(&all[threads], 2))
			PtlFini();
		else
			OK(PtlNIFini(ni));
		__atomic_store_n(&closing, 1, __ATOMIC_RELAXED);
		for (i = 0; i < threads; i++)
			CHECK(pthread_join(id[i], NULL) == 0);
	}
	for (i = 1; i < BLOCKS; i += 2)
		for (at = 0; at < BLOCK; at++)
			CHECK(memory[i * BLOCK + at] == CANARY);
	printf("rank %u: %lu events\n", me, events);
	return 0;
}
