/* All event queues that the limits allow are the program's: with the only one in use PtlProgress serves others, so does a
 * barrier, and an orderly close sends what is under way; none of them makes a queue that the program did not ask for.
 * Two ranks. */
#include <pthread.h>

#include "check.h"
#include <catamount/cnos_mpi_os.h>

enum { PORTAL = 3, LONG = 4 << 20 };

static char small[64], got[64], large[LONG];
static ptl_handle_eq_t eq;

static ptl_sr_value_t queues(ptl_handle_ni_t ni, ptl_sr_index_t which)
{
	ptl_sr_value_t value;

	OK(PtlNIStatus(ni, which, &value));
	return value;
}

static void expose(ptl_handle_ni_t ni, void *start, ptl_size_t length, ptl_match_bits_t bits, ptl_handle_eq_t events)
{
	ptl_handle_me_t me;
	ptl_handle_md_t md;

	OK(PtlMEAttach(ni, PORTAL, anyone, bits, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me,
		       describe(start, length,
				PTL_MD_OP_PUT | PTL_MD_OP_GET | PTL_MD_MANAGE_REMOTE | PTL_MD_EVENT_START_DISABLE,
				events),
		       PTL_RETAIN, &md));
}

static void no_queue_was_made(ptl_handle_ni_t ni)
{
	ptl_handle_eq_t first = 0xc0000000u | (ni & 0x38000000u);
	ptl_handle_ni_t of;

	CHECK(queues(ni, PTL_SR_EQS_ALLOC) == 0 && queues(ni, PTL_SR_EQS_CUR) == 0);
	GIVES(PTL_HANDLE_INVALID, PtlNIHandle(first, &of));
	GIVES(PTL_EQ_INVALID, PtlEQFree(first));
}

/* A wait of PtlProgress ends with the interface. */
static void *serves(void *handle)
{
	GIVES(PTL_NI_INVALID, PtlProgress(*(ptl_handle_ni_t *)handle, 50000));
	return NULL;
}

int main(void)
{
	int rank = cnos_get_rank(), max_interfaces;
	ptl_ni_limits_t desired, actual;
	ptl_handle_ni_t ni;
	ptl_handle_eq_t another;
	ptl_handle_md_t md;
	ptl_process_id_t peer;
	pthread_t server;
	ptl_event_t e;

	memset(&desired, 0x7f, sizeof desired);
	desired.max_eqs = 1;
	OK(PtlInit(&max_interfaces));
	OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, &desired, &actual, &ni));
	CHECK(actual.max_eqs == 1);
	OK(PtlProgress(ni, 0));
	OK(PtlProgress(ni, 1));
	CHECK(cnos_barrier() == 0);
	no_queue_was_made(ni);

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	GIVES(PTL_NO_SPACE, PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &another));
	OK(PtlProgress(ni, 1));
	OK(PtlGetRankId(ni, 1 - rank, &peer));
	memset(small, 'a' + rank, sizeof small);
	expose(ni, small, sizeof small, 1, PTL_EQ_NONE);
	expose(ni, large, sizeof large, 2, eq);
	CHECK(cnos_barrier() == 0);

	/* Rank 0 is in the barrier. */
	if (rank == 1) {
		OK(PtlMDBind(ni, describe(got, sizeof got, PTL_MD_EVENT_START_DISABLE, eq), PTL_RETAIN, &md));
		OK(PtlGet(md, peer, PORTAL, 0, 1, 0));
		expect(eq, PTL_EVENT_REPLY_END);
		CHECK(got[0] == 'a' && !memcmp(got, got + 1, sizeof got - 1));
		OK(PtlPut(md, PTL_ACK_REQ, peer, PORTAL, 0, 1, 0, 0));
		expect(eq, PTL_EVENT_SEND_END);
		expect(eq, PTL_EVENT_ACK);
	}
	CHECK(cnos_barrier() == 0);

	/* A close right after a long put. */
	if (rank == 0) {
		memset(large, 0x5a, sizeof large);
		OK(PtlMDBind(ni, describe(large, sizeof large, 0, PTL_EQ_NONE), PTL_RETAIN, &md));
		OK(PtlPut(md, PTL_NO_ACK_REQ, peer, PORTAL, 0, 2, 0, 0));
	} else {
		e = expect(eq, PTL_EVENT_PUT_END);
		CHECK(e.mlength == LONG && large[0] == 0x5a && large[LONG - 1] == 0x5a);
	}
	if (rank == 1)
		CHECK(pthread_create(&server, NULL, serves, &ni) == 0);
	OK(PtlNIFini(ni));
	if (rank == 1)
		CHECK(pthread_join(server, NULL) == 0);
	PtlFini();
	return 0;
}
