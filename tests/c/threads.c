/* Rules 59 and 73. Threads of one rank: two wait on one queue while the main thread puts to its own rank and to the
 * other one; each event comes once. At the end a thread still waits when main returns. */
#include "check.h"

#include <cnos_mpi_os.h>
#include <pthread.h>

enum { PORTAL = 9, PUTS = 200 };

static ptl_handle_ni_t ni;
static ptl_handle_eq_t eq, end_eq;
static char target[8], source[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int seen[2 * PUTS], total;

/* Takes events until one says that it is the last. */
static void *wait_for_puts(void *unused)
{
	for (;;) {
		ptl_event_t e = expect(eq, PTL_EVENT_PUT_END);

		if (e.hdr_data >= 2 * PUTS)
			return unused;
		pthread_mutex_lock(&lock);
		seen[e.hdr_data]++;
		total++;
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&lock);
	}
}

/* A queue that is freed is none, whether a descriptor names it or not, also for whoever waits on it. */
static void *wait_for_no_queue(void *freed)
{
	ptl_handle_eq_t both[2] = { end_eq, *(ptl_handle_eq_t *)freed };
	ptl_event_t e;
	int which = -1;

	GIVES(PTL_EQ_INVALID, PtlEQPoll(both, 2, PTL_TIME_FOREVER, &e, &which));
	CHECK(which == 1);
	GIVES(PTL_EQ_INVALID, PtlEQWait(both[1], &e));
	return NULL;
}

static void free_under_a_waiter(void)
{
	ptl_handle_eq_t freed;
	ptl_handle_md_t md;
	pthread_t waiters[2];
	int i;

	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &freed));
	OK(PtlMDBind(ni, describe(source, sizeof source, 0, freed), PTL_RETAIN, &md));
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&waiters[i], NULL, wait_for_no_queue, &freed) == 0);
	OK(PtlEQFree(freed));
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(waiters[i], NULL) == 0);
	OK(PtlMDUnlink(md));
}

static void *wait_for_ever(void *started)
{
	ptl_event_t e;

	pthread_mutex_lock(&lock);
	*(int *)started = 1;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	PtlEQWait(end_eq, &e);
	return NULL;
}

int main(void)
{
	pthread_t waiters[2], last;
	ptl_handle_me_t me;
	ptl_handle_md_t in, out;
	ptl_process_id_t own, peer;
	unsigned rank, size;
	int i, started = 0;

	ni = open_default();
	OK(PtlGetRank(ni, &rank, &size));
	OK(PtlGetRankId(ni, 1 - rank, &peer));
	OK(PtlGetId(ni, &own));
	OK(PtlEQAlloc(ni, 4 * PUTS, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &end_eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me,
		       describe(target, sizeof target, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE |
				PTL_MD_EVENT_START_DISABLE, eq),
		       PTL_RETAIN, &in));
	OK(PtlMDBind(ni, describe(source, sizeof source, 0, PTL_EQ_NONE), PTL_RETAIN, &out));

	/* Both descriptors are there. */
	CHECK(cnos_barrier() == 0);
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&waiters[i], NULL, wait_for_puts, NULL) == 0);
	for (i = 0; i < PUTS; i++)
		OK(PtlPut(out, PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 0, i));
	pthread_mutex_lock(&lock);
	while (total < PUTS)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	for (i = 0; i < PUTS; i++)
		OK(PtlPut(out, PTL_NO_ACK_REQ, peer, PORTAL, 0, 0, 0, PUTS + i));
	pthread_mutex_lock(&lock);
	while (total < 2 * PUTS)
		pthread_cond_wait(&changed, &lock);
	for (i = 0; i < 2 * PUTS; i++)
		CHECK(seen[i] == 1);
	pthread_mutex_unlock(&lock);

	/* One last message for each waiter. */
	for (i = 0; i < 2; i++)
		OK(PtlPut(out, PTL_NO_ACK_REQ, own, PORTAL, 0, 0, 0, 2 * PUTS));
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(waiters[i], NULL) == 0);
	free_under_a_waiter();
	CHECK(pthread_create(&last, NULL, wait_for_ever, &started) == 0);
	pthread_mutex_lock(&lock);
	while (!started)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return 0;
}
