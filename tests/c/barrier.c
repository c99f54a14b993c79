/* A rank that waits in a barrier serves puts and gets of others meanwhile. Two ranks. */
#include "check.h"
#include <catamount/cnos_mpi_os.h>

enum { PORTAL = 3, ROUNDS = 3 };

static char bytes[4096], got[4096];

int main(void)
{
	int rank = cnos_get_rank(), round;
	ptl_handle_ni_t ni = open_default();
	ptl_handle_eq_t eq;
	ptl_handle_me_t me;
	ptl_handle_md_t md, from;
	ptl_process_id_t target;

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	memset(bytes, rank ? 0 : 'a', sizeof bytes);
	OK(PtlMEAttach(ni, PORTAL, anyone, 3, 0, PTL_UNLINK, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(bytes, sizeof bytes, PTL_MD_OP_PUT | PTL_MD_OP_GET | PTL_MD_MANAGE_REMOTE, PTL_EQ_NONE),
		       PTL_RETAIN, &md));
	CHECK(cnos_barrier() == 0);
	if (rank == 1) {
		OK(PtlGetRankId(ni, 0, &target));
		OK(PtlMDBind(ni, describe(got, sizeof got, PTL_MD_EVENT_START_DISABLE, eq), PTL_RETAIN, &from));
		for (round = 0; round < ROUNDS; round++) {
			OK(PtlGet(from, target, PORTAL, 0, 3, 0));
			expect(eq, PTL_EVENT_REPLY_END);
			CHECK(got[0] == 'a' + round && !memcmp(got, got + 1, sizeof got - 1));
			memset(got, got[0] + 1, sizeof got);
			OK(PtlPut(from, PTL_ACK_REQ, target, PORTAL, 0, 3, 0, 0));
			expect(eq, PTL_EVENT_SEND_END);
			expect(eq, PTL_EVENT_ACK);
		}
	}
	CHECK(cnos_barrier() == 0);
	CHECK(rank != 0 || bytes[4095] == 'a' + ROUNDS);
	PtlFini();
	return 0;
}
