/* Ranks by PtlSetRank: from the launcher, from the environment, given by the program; and by cnos,
 * whose barrier holds ranks until all have come. */
#include "check.h"

#include <cnos_mpi_os.h>
#include <p3nal_utcp.h>
#include <unistd.h>

enum { ROUNDS = 10 };

/* One rank is late at the barrier, and leaves a file behind before it comes; the other finds the file
 * behind the barrier. Its folder is for this job alone. */
static void barrier_waits(unsigned rank)
{
	const char *folder = getenv("TMPDIR");
	char path[200];
	unsigned round;

	CHECK(folder != NULL);
	for (round = 0; round < ROUNDS; round++) {
		int late = round % 2 == rank;

		snprintf(path, sizeof path, "%s/barrier-%u", folder, round);
		if (late) {
			volatile unsigned long work;
			FILE *file;

			for (work = 0; work < 3000000; work++)
				;
			file = fopen(path, "w");
			CHECK(file && fclose(file) == 0);
		}
		CHECK(cnos_barrier() == 0);
		CHECK(access(path, F_OK) == 0);
		CHECK(cnos_barrier() == 0);
		if (late)
			CHECK(unlink(path) == 0);
	}
}

/* Scenarios 102 and 104. */
int main(void)
{
	int max_interfaces;
	ptl_handle_ni_t ni;
	ptl_process_id_t id, own;
	ptl_nid_t nids[2];
	cnos_nidpid_map_t *map;
	ptl_pid_t pids[2];
	ptl_jid_t jid;
	unsigned rank, size, i, early;
	int of_environment = getenv("PTL_MY_RID") != NULL;

	OK(p3tcp_my_nid("eth0", &early));
	OK(PtlInit(&max_interfaces));
	/* Asked without having been set. */
	OK(PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
	if (!of_environment) {
		GIVES(PTL_NO_INIT, PtlSetNIDMap(ni, nids, 2));
		OK(PtlGetRank(ni, &rank, &size));
		CHECK(size == 2 && rank == (unsigned)cnos_get_rank());
		OK(PtlGetId(ni, &own));
		OK(PtlGetRankId(ni, rank, &id));
		CHECK(id.nid == own.nid && id.pid == own.pid);
		OK(PtlGetNIDMap(ni, nids, 2));
		CHECK(nids[rank] == own.nid);
		GIVES(PTL_NO_INIT, PtlSetNIDMap(ni, nids, 2));
		OK(PtlSetRank(ni, 1 - rank, 2));
		OK(PtlGetRank(ni, &i, &size));
		CHECK(i == 1 - rank);
		GIVES(PTL_FAIL, PtlSetRank(ni, rank, 2));
	}
	OK(PtlNIFini(ni));
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
	CHECK(cnos_get_size() == 2 && cnos_register_ptlid(own) == 0);
	CHECK(cnos_get_nidpid_map(&map) == 2);
	nids[0] = own.nid + 1;
	OK(p3tcp_my_nid("eth0", nids));
	CHECK(nids[0] == own.nid && early == own.nid && utcp_my_nid("eth0") == own.nid);
	GIVES(PTL_SEGV, p3tcp_my_nid("eth0", NULL));
	for (i = 0; i < size; i++) {
		OK(PtlGetRankId(ni, i, &id));
		CHECK(map[i].nid == id.nid && map[i].pid == id.pid);
	}
	OK(PtlGetJid(ni, &jid));
	CHECK(jid < 0xffff); /* of the job */
	barrier_waits(rank);
	OK(PtlNIFini(ni));

	/* Again, with ranks of the program's own making. */
	OK(PtlSetRank(PTL_INVALID_HANDLE, 1 - rank, 2));
	nids[0] = 2;
	nids[1] = 1;
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
