/* Another library of the process is in the job too, over the same line to the launcher, as MPI libraries are: it joins
 * before or after the interface is opened, and leaves and closes the line before the interface is closed, or after. MPICH's
 * shuts it down for everybody.
 *
 *   beside_mpi first|later before|after [shut]
 */
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

static int shut;

static int line_to_launcher(void)
{
	const char *number = getenv("PMI_FD");

	CHECK(number);
	return atoi(number);
}

/* Asks, and takes an answer that is one line. */
static void ask(const char *question, const char *answer)
{
	char got[256];
	size_t have = 0;
	int fd = line_to_launcher();

	CHECK(write(fd, question, strlen(question)) == (ssize_t)strlen(question));
	do {
		CHECK(have + 1 < sizeof got && read(fd, got + have, 1) == 1);
	} while (got[have++] != '\n');
	got[have] = 0;
	CHECK(strncmp(got, answer, strlen(answer)) == 0);
}

static void join(void)
{
	ask("cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init");
}

static void leave(void)
{
	ask("cmd=finalize\n", "cmd=finalize_ack");
	if (shut)
		CHECK(shutdown(line_to_launcher(), SHUT_RDWR) == 0);
	CHECK(close(line_to_launcher()) == 0);
}

int main(int count, char **words)
{
	int first, before;
	unsigned rank, size;
	long got = -1, own;
	ptl_handle_ni_t ni;
	ptl_handle_eq_t eq;
	ptl_handle_me_t me;
	ptl_handle_md_t md, source;
	ptl_process_id_t next;
	ptl_event_t event;

	CHECK(count == 3 || count == 4);
	shut = count == 4;
	first = strcmp(words[1], "first") == 0;
	before = strcmp(words[2], "before") == 0;
	if (first)
		join();
	ni = open_default();
	if (!first)
		join();
	OK(PtlGetRank(ni, &rank, &size));
	own = (long)rank;
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, 4, anyone, 7, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(&got, sizeof got, PTL_MD_OP_PUT | PTL_MD_EVENT_START_DISABLE, eq), PTL_RETAIN,
		       &md));
	OK(PtlMDBind(ni, describe(&own, sizeof own, 0, PTL_EQ_NONE), PTL_RETAIN, &source));
	/* The other library's barrier. */
	ask("cmd=barrier_in\n", "cmd=barrier_out");
	OK(PtlGetRankId(ni, (rank + 1) % size, &next));
	OK(PtlPut(source, PTL_NOACK_REQ, next, 4, 0, 7, 0, 0));
	OK(PtlEQWait(eq, &event));
	CHECK(event.type == PTL_EVENT_PUT_END && got == (long)((rank + size - 1) % size));
	ask("cmd=barrier_in\n", "cmd=barrier_out");
	if (before)
		leave();
	OK(PtlNIFini(ni));
	PtlFini();
	if (!before)
		leave();
	printf("rank %u: all right\n", rank);
	return 0;
}
