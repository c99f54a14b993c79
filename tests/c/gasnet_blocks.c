/* A message that arrives while GASNET_BLOCKUNTIL, before it waits, sends of a collective that is under way: nothing else comes,
 * and it returns. Two nodes over shared memory, which tell each other by a shared file when no call may be made.
 *
 *   gasnet_blocks FILE */
#define _GNU_SOURCE
#include <gasnet.h>
#include <gasnet_coll.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gasnet_check.h"

enum { TELL = 200, IGNORE = 201 };

static volatile int told;
static int *step;

static void tell(gasnet_token_t token)
{
	(void)token;
	told = 1;
}

static void ignore(gasnet_token_t token)
{
	(void)token;
}

static void reach(int to)
{
	__atomic_store_n(step, to, __ATOMIC_RELEASE);
}

/* Without a call of the conduit. */
static void await(int at_least)
{
	while (__atomic_load_n(step, __ATOMIC_ACQUIRE) < at_least) sched_yield();
}

int main(int argc, char **argv)
{
	gasnet_handlerentry_t table[] = { { TELL, (void (*)())tell }, { IGNORE, (void (*)())ignore } };
	gasnet_coll_handle_t handle;
	int from = 77, to = 0, file;

	OK(gasnet_init(&argc, &argv));
	CHECK(argc > 1 && gasnet_nodes() == 2);
	OK(gasnet_attach(table, 2, GASNET_PAGESIZE, 0));
	file = open(argv[1], O_RDWR);
	CHECK(file >= 0);
	step = (int *)mmap(NULL, sizeof *step, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(step != MAP_FAILED);
	gasnet_coll_init(NULL, 0, NULL, 0, 0);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));

	handle = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, &to, 0, &from, sizeof to,
					  GASNET_COLL_LOCAL | GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC);
	if (gasnet_mynode() == 0) {
		/* Node 1 has begun: this sends the data, and waits for its end. */
		await(1);
		OK(gasnet_AMPoll());
		reach(2);
		await(3);
		OK(gasnet_AMRequestShort0(1, TELL));
		reach(4);
		await(5);
	} else {
		reach(1);
		await(2);
		/* Takes the data, and leaves its answer to the next call that drives collectives. */
		OK(gasnet_AMRequestShort0(0, IGNORE));
		reach(3);
		await(4);
		CHECK(!told && to == 0);
		GASNET_BLOCKUNTIL(told);
		CHECK(to == 77);
		reach(5);
	}
	gasnet_coll_wait_sync(handle);
	CHECK(to == 77);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	OK(gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
	return 0;
}
