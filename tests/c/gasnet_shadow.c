/* Memory of every kind that comes and goes at random while it is a source, a destination or a target, against a copy of all data
 * that never goes: allocator, mappings, System V, the end of the heap and two shared objects of one layout. Node 0 does and looks at
 * everything; node 1 makes its memory come and go when it is told to.
 *
 *   gasnet_shadow SEED STEPS OBJECT OBJECT */
#define _GNU_SOURCE
#include <gasnet.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "gasnet_heap.h"

enum { LONG = 200, LONG_CAME, COME, CAME, END };
enum { SLOTS = 6, MOST = 256 * 1024, PAGE = 4096 };
enum way { HEAP, MAP, SYSV, BRK, OBJECT, WAYS };

extern int gasneti_is_pinned(const void *addr, size_t len);

struct slot {
	enum way way;
	unsigned char *at;
	size_t len;
	int which;
};

static struct slot slots[SLOTS];
static gasnet_seginfo_t segments[2];
static const char *paths[2];
static void *objects[2];
static unsigned char *brk_at;
static uint64_t state;
static volatile int longs, ended;
static volatile uint64_t asked, answer;

/* Of node 0: what is in its slots, and in node 1's memory. */
static unsigned char own[SLOTS][MOST], far[SLOTS][MOST], back[MOST];
static unsigned char *far_at[SLOTS];
static size_t far_len[SLOTS];

static uint64_t draw(uint64_t below)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 11) % below;
}

static void fill(unsigned char *p, size_t len, uint64_t seed)
{
	size_t i;

	for (i = 0; i < len; i++) {
		if (i % 8 == 0) seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = (unsigned char)(seed >> (24 + i % 8));
	}
}

/* How a slot's memory goes; on another thread now and then. */
static void *go(void *of)
{
	struct slot *s = (struct slot *)of;

	switch (s->at == NULL ? WAYS : s->way) {
	case HEAP: free(s->at); break;
	case MAP: CHECK(munmap(s->at, s->len) == 0); break;
	case SYSV: CHECK(shmdt(s->at) == 0); break;
	case BRK:
		if (s->which) CHECK(brk(brk_at) == 0);
		else CHECK(sbrk(-(MOST + PAGE)) != (void *)-1);
		brk_at = NULL;
		break;
	case OBJECT:
		CHECK(dlclose(objects[s->which]) == 0);
		objects[s->which] = NULL;
		break;
	default: break;
	}
	s->at = NULL;
	return NULL;
}

static unsigned char *attach(size_t len, unsigned char *at, int flags)
{
	int id = shmget(IPC_PRIVATE, len, 0600 | IPC_CREAT);
	void *p = shmat(id, at, flags);

	CHECK(id >= 0 && p != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
	return (unsigned char *)p;
}

/* Other memory than before, of `len` bytes. */
static void come(struct slot *s, size_t len, uint64_t how)
{
	unsigned char *before = s->at;
	size_t was = s->len;
	enum way way = (enum way)(how % WAYS);
	pthread_t thread;
	int again = (how >> 8) % 4;

	/* In place, by what takes the place of all of it, or of what is in it. */
	if (before != NULL && s->way == MAP && again == 0) {
		CHECK(mmap(before, was, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == before);
		CHECK(!gasneti_is_pinned(before, was));
		return;
	}
	if (before != NULL && s->way == MAP && again == 1) {
		CHECK(madvise(before, was, MADV_DONTNEED) == 0);
		CHECK(!gasneti_is_pinned(before, was));
		return;
	}
	if (before != NULL && s->way == MAP && again == 2) {
		CHECK(attach(was, before, SHM_REMAP) == before);
		s->way = SYSV;
		CHECK(!gasneti_is_pinned(before, was));
		return;
	}
	if ((how >> 16) % 4 == 0) {
		CHECK(pthread_create(&thread, NULL, go, s) == 0 && pthread_join(thread, NULL) == 0);
	} else {
		go(s);
	}
	if (way == BRK && brk_at != NULL) way = MAP;
	if (way == OBJECT && objects[0] != NULL && objects[1] != NULL) way = SYSV;
	s->way = way;
	s->len = len;
	switch (way) {
	case HEAP: s->at = (unsigned char *)malloc(len); break;
	case SYSV: s->at = attach(len, NULL, 0); break;
	case BRK:
		brk_at = (unsigned char *)sbrk(MOST + PAGE);
		CHECK(brk_at != (unsigned char *)-1);
		s->at = (unsigned char *)(((uintptr_t)brk_at + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
		s->which = (int)((how >> 24) % 2);
		break;
	case OBJECT:
		s->which = objects[0] != NULL || (objects[1] == NULL && (how >> 24) % 2);
		objects[s->which] = dlopen(paths[s->which], RTLD_NOW);
		CHECK(objects[s->which] != NULL);
		s->at = (unsigned char *)dlsym(objects[s->which], "memory");
		break;
	default:
		s->at = (unsigned char *)mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(s->at != MAP_FAILED);
	}
	CHECK(s->at != NULL);
	/* The allocator keeps what it has, and so does what is pinned of it. */
	if (way != HEAP) CHECK(!gasneti_is_pinned(s->at, s->len));
}

static size_t length(void)
{
	return (1 + draw(MOST / PAGE)) * PAGE;
}

static void long_request(gasnet_token_t token, void *at, size_t len)
{
	(void)at, (void)len;
	OK(gasnet_AMReplyShort0(token, LONG_CAME));
}

static void long_came(gasnet_token_t token)
{
	(void)token;
	longs++;
}

static void come_request(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
	(void)token;
	asked = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
}

static void came(gasnet_token_t token, gasnet_handlerarg_t high, gasnet_handlerarg_t low)
{
	(void)token;
	answer = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
}

static void end(gasnet_token_t token)
{
	(void)token;
	ended = 1;
}

static void say(gasnet_node_t node, gasnet_handler_t handler, uint64_t word)
{
	OK(gasnet_AMRequestShort2(node, handler, (gasnet_handlerarg_t)(word >> 32), (gasnet_handlerarg_t)word));
}

/* Node 1: a word is how memory comes, which slot, how many pages. */
static void serve(void)
{
	uint64_t word;
	struct slot *s;

	for (;;) {
		GASNET_BLOCKUNTIL(asked != 0 || ended);
		if (ended) return;
		word = asked;
		asked = 0;
		s = &slots[(word >> 32) & 0xff];
		come(s, ((word >> 40) % (MOST / PAGE) + 1) * PAGE, word);
		fill(s->at, s->len, word);
		say(0, CAME, (uintptr_t)s->at);
		GASNET_BLOCKUNTIL(asked != 0 || ended);
		word = asked;
		asked = 0;
		say(0, CAME, s->len);
	}
}

static uint64_t ask(uint64_t word)
{
	answer = 0;
	say(1, COME, word);
	GASNET_BLOCKUNTIL(answer != 0);
	return answer;
}

static void come_far(int j)
{
	uint64_t word = (draw(1u << 31) | 1) | (uint64_t)j << 32 | draw(MOST / PAGE) << 40;

	far_at[j] = (unsigned char *)(uintptr_t)ask(word);
	far_len[j] = ask(1);
	fill(far[j], far_len[j], word);
}

/* In segments the slots of node 1 are its parts. */
static void lay_out(int j)
{
	far_at[j] = (unsigned char *)segments[1].addr + (size_t)j * MOST;
	far_len[j] = MOST;
	memset(back, 0, MOST);
	gasnet_put_bulk(1, far_at[j], back, MOST);
}

static void look_far(int j)
{
	gasnet_get_bulk(back, 1, far_at[j], far_len[j]);
	CHECK(memcmp(back, far[j], far_len[j]) == 0);
}

static void step(int everything)
{
	int i = (int)draw(SLOTS), j = (int)draw(SLOTS), before = longs;
	struct slot *s = &slots[i];
	size_t most = s->len < far_len[j] ? s->len : far_len[j], len = 1 + draw(most);
	size_t from = draw(s->len - len + 1), to = draw(far_len[j] - len + 1);

	switch (draw(8)) {
	case 0:
	case 1:
		come(s, length(), draw(1u << 31));
		fill(s->at, s->len, state);
		memcpy(own[i], s->at, s->len);
		return;
	case 2:
		if (everything) come_far(j);
		else fill(s->at + from, len, state), memcpy(own[i] + from, s->at + from, len);
		return;
	case 3:
	case 4:
		gasnet_put_bulk(1, far_at[j] + to, s->at + from, len);
		break;
	case 5:
		OK(gasnet_AMRequestLong0(1, LONG, s->at + from, len, far_at[j] + to));
		GASNET_BLOCKUNTIL(longs > before);
		break;
	default:
		gasnet_get_bulk(s->at + from, 1, far_at[j] + to, len);
		memcpy(own[i] + from, far[j] + to, len);
		CHECK(memcmp(s->at, own[i], s->len) == 0);
		return;
	}
	memcpy(far[j] + to, own[i] + from, len);
	look_far(j);
}

#define HANDLER(index, function) { index, (void (*)())function }

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { HANDLER(LONG, long_request), HANDLER(LONG_CAME, long_came), HANDLER(COME, come_request),
					  HANDLER(CAME, came), HANDLER(END, end) };
	int i, everything = 0;
	long steps, n;

	/* The end of the heap is one of the slots: the allocator has enough below it, and keeps that on fabrics that pin nothing too. */
	keep_room(64 << 20);
	OK(gasnet_init(&argc, &argv));
#ifdef GASNET_SEGMENT_EVERYTHING
	everything = 1;
#endif
	OK(gasnet_attach(table, 5, everything ? 0 : SLOTS * MOST, 0));
	OK(gasnet_getSegmentInfo(segments, 2));
	if (argc < 5) gasnet_exit(2);
	state = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15u + 1 + gasnet_mynode();
	steps = strtol(argv[2], NULL, 0);
	paths[0] = argv[3], paths[1] = argv[4];
	if (gasnet_mynode() == 1) {
		serve();
	} else {
		for (i = 0; i < SLOTS; i++) {
			come(&slots[i], length(), draw(1u << 31));
			fill(slots[i].at, slots[i].len, state);
			memcpy(own[i], slots[i].at, slots[i].len);
			if (everything) come_far(i);
			else lay_out(i);
		}
		for (n = 0; n < steps; n++) step(everything);
		for (i = 0; i < SLOTS; i++) {
			look_far(i);
			CHECK(memcmp(slots[i].at, own[i], slots[i].len) == 0);
		}
		OK(gasnet_AMRequestShort0(1, END));
	}
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
	return 1;
}
