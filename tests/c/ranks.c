/* Ranks by PtlSetRank: from the launcher, from the environment, given by the program; and by cnos,
 * whose barrier holds ranks until all have come. */
#include "check.h"

#include <cnos_mpi_os.h>

/* Scenarios 102 and 104. */
int main(void)
{
	int max_interfaces;
	ptl_handle_ni_t ni;
	ptl_process_id_t id, own;
	ptl_nid_t nids[2];
	ptl_pid_t pids[2];
	unsigned rank, size, i;
	int of_environment = getenv("PTL_MY_RID") != NULL;

	OK(PtlInit(&max_interfaces));
	GIVES(PTL_NO_INIT, PtlGetRank(PTL_INVALID_HANDLE, &rank, &size));
	GIVES(PTL_FAIL, PtlSetRank(PTL_INVALID_HANDLE, 2, 2));
	OK(PtlSetRank(PTL_INVALID_HANDLE, (unsigned)-1, (unsigned)-1));
	GIVES(PTL_FAIL, PtlSetRank(PTL_INVALID_HANDLE, (unsigned)-1, (unsigned)-1));
	OK(PtlGetRank(PTL_INVALID_HANDLE, &rank, &size));
	OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetRank(ni, &rank, &size));
	/* It belongs to the interface now. */
	GIVES(PTL_NO_INIT, PtlGetRank(PTL_INVALID_HANDLE, &rank, &size));
	CHECK(size == 2 && rank == (unsigned)cnos_get_rank());
	OK(PtlGetId(ni, &own));
	if (of_environment)
		CHECK(own.pid == 700 + rank);
	for (i = 0; i < size; i++) {
		OK(PtlGetRankId(ni, i, &id));
		CHECK((id.nid == own.nid && id.pid == own.pid) == (i == rank));
	}
	GIVES(PTL_NO_INIT, PtlGetRankId(ni, 2, &id));
	GIVES(PTL_FAIL, PtlGetNIDMap(ni, nids, 1));
	OK(PtlGetNIDMap(ni, nids, 2));
	OK(PtlGetPIDMap(ni, pids, 2));
	CHECK(nids[rank] == own.nid && pids[rank] == own.pid);
	CHECK(cnos_barrier() == 0);
	OK(PtlNIFini(ni));

	/* Again, with ranks of the program's own making. */
	OK(PtlSetRank(PTL_INVALID_HANDLE, 1 - rank, 2));
	nids[0] = 1;
	nids[1] = 0;
	pids[0] = pids[1] = 321;
	GIVES(PTL_FAIL, PtlSetNIDMap(PTL_INVALID_HANDLE, nids, 1));
	OK(PtlSetNIDMap(PTL_INVALID_HANDLE, nids, 2));
	GIVES(PTL_FAIL, PtlSetNIDMap(PTL_INVALID_HANDLE, nids, 2));
	GIVES(PTL_PID_INVALID, PtlSetPIDMap(PTL_INVALID_HANDLE, pids, 3));
	OK(PtlSetPIDMap(PTL_INVALID_HANDLE, pids, 2));
	OK(PtlSetJID(77));
	OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
	OK(PtlGetJid(ni, &i));
	CHECK(i == 77);
	OK(PtlGetRankId(ni, 1 - rank, &id));
	OK(PtlGetId(ni, &own));
	CHECK(id.nid == own.nid && id.pid == own.pid && own.pid == 321);
	cnos_pm_barrier(1);
	return 0;
}
