/* A program that refuses itself random numbers and further files once it has its segment, as sandboxes do, goes on to use all. */
#include <gasnet.h>
#include <gasnet_coll.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "gasnet_check.h"

enum { SIZE = 1 << 20 };

static gasnet_seginfo_t segments[2];

static void meet(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	CHECK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK);
}

static void seal(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* In a thread that has not called before: what a thread has of its own is made by its first call. */
static void *works(void *none)
{
	int mine = 5 + 7 * (int)gasnet_mynode(), all = 0, i;
	gasnet_node_t other = 1 - gasnet_mynode();
	unsigned char *here = malloc(SIZE), *back = malloc(SIZE);

	CHECK(here != NULL && back != NULL);
	gasnet_coll_init(NULL, 0, NULL, 0, 0);
	gasnet_coll_broadcast(GASNET_TEAM_ALL, &all, 1, &mine, sizeof mine,
			      GASNET_COLL_LOCAL | GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC);
	CHECK(all == 12);
	for (i = 0; i < SIZE; i++)
		here[i] = (unsigned char)(i * 7 + mine);
	gasnet_put_bulk(other, segments[other].addr, here, SIZE);
	gasnet_get_bulk(back, other, segments[other].addr, SIZE);
	CHECK(memcmp(here, back, SIZE) == 0);
	meet();
	free(here);
	free(back);
	return none;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
	CHECK(gasnet_attach(NULL, 0, SIZE, 0) == GASNET_OK);
	CHECK(gasnet_getSegmentInfo(segments, 2) == GASNET_OK);
	meet();
	seal();
#ifdef GASNET_PAR
	CHECK(pthread_create(&thread, NULL, works, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
#else
	(void)thread;
	works(NULL);
#endif
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_exit(0);
	return 0;
}
