/* A child that is forked once its parent has joined the job is no rank: what it calls of the job fails, does nothing to the
 * parent's place in it, and its end is not the parent's. Two ranks; "early": before PtlInit, "late": with an interface that
 * is open. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catamount/cnos_mpi_os.h>
#include <p3nal_utcp.h>

#include "check.h"

enum { PORTAL = 5, CHILDREN = 500 };

static int arrived, sent = 7;

static void child(void)
{
	static const ptl_process_id_t own = {0, 0};
	cnos_nidpid_map_t *map = NULL;
	ptl_handle_ni_t ni;
	unsigned nid;
	int n;

	CHECK(cnos_get_rank() == -1 && cnos_get_size() == -1);
	CHECK(cnos_get_nidpid_map(&map) == -1 && !map);
	CHECK(cnos_register_ptlid(own) == -1);
	CHECK(cnos_barrier() == -1);
	cnos_pm_barrier(1);
	GIVES(PTL_FAIL, p3tcp_my_nid("eth0", &nid));
	CHECK(utcp_my_nid("eth0") == 0xffffffffu);
	GIVES(PTL_FAIL, PtlInit(&n));
	GIVES(PTL_NO_INIT, PtlSetRank(PTL_INVALID_HANDLE, -1, -1));
	GIVES(PTL_NO_INIT, PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
	exit(0);
}

static void have_a_child(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		child();
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static volatile int enough;

/* Is in the library most of the time. */
static void *calls(void *unused)
{
	while (!enough) {
		PtlNIDebug(PTL_INVALID_HANDLE, 5);
		GIVES(PTL_FAIL, PtlSetRank(PTL_INVALID_HANDLE, 0, 0));
	}
	return unused;
}

/* What another thread is in the middle of at the fork stays so in the child, whose calls do not wait for it. */
static void have_children_beside_calls(void)
{
	pthread_t threads[2];
	int i, status;

	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, calls, NULL) == 0);
	for (i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			int n;

			alarm(20);
			CHECK(PtlNIDebug(PTL_INVALID_HANDLE, 6) == 0);
			GIVES(PTL_FAIL, PtlInit(&n));
			GIVES(PTL_NO_INIT, PtlSetRank(PTL_INVALID_HANDLE, -1, -1));
			CHECK(cnos_get_rank() == -1);
			PtlFini();
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	enough = 1;
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	int early = argc > 1 && strcmp(argv[1], "early") == 0;
	int rank = cnos_get_rank();
	ptl_handle_ni_t ni;
	ptl_handle_eq_t eq;
	ptl_handle_me_t me;
	ptl_handle_md_t md;
	ptl_process_id_t to;

	CHECK(cnos_get_size() == 2);
	if (early && rank == 0)
		have_a_child();
	ni = open_default();
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(&arrived, sizeof arrived, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE, PTL_EQ_NONE),
		       PTL_RETAIN, &md));
	CHECK(cnos_barrier() == 0);
	if (rank == 0) {
		if (!early) {
			have_a_child();
			have_children_beside_calls();
		}
		OK(PtlGetRankId(ni, 1, &to));
		OK(PtlMDBind(ni, describe(&sent, sizeof sent, PTL_MD_EVENT_START_DISABLE, eq), PTL_RETAIN, &md));
		OK(PtlPut(md, PTL_ACK_REQ, to, PORTAL, 0, 0, 0, 0));
		expect(eq, PTL_EVENT_SEND_END);
		expect(eq, PTL_EVENT_ACK);
	}
	/* Nobody passes before the parent has come, whatever its child did. */
	CHECK(cnos_barrier() == 0);
	CHECK(rank == 0 || arrived == 7);
	CHECK(cnos_barrier() == 0);
	return 0;
}
