/* Each rank puts a line into the memory of the next rank, and prints the line that it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <portals3.h>
#include <p3rt/p3rt.h>
#include <catamount/cnos_mpi_os.h>

enum { PORTAL = 4, BITS = 0xcafe, ROOM = 64 };

static void must(const char *call, int code)
{
	if (code == PTL_OK)
		return;
	fprintf(stderr, "%s: %s\n", call, PtlErrorStr((unsigned)code));
	exit(1);
}

/* Memory of `length` bytes: what may be done with it, and the queue that tells of it. */
static ptl_md_t memory(void *start, ptl_size_t length, unsigned options, ptl_handle_eq_t eq)
{
	ptl_md_t md = {0};

	md.start = start;
	md.length = length;
	md.threshold = PTL_MD_THRESH_INF;
	md.options = options | PTL_MD_EVENT_START_DISABLE;
	md.eq_handle = eq;
	return md;
}

/* The next event of this kind. */
static ptl_event_t event(ptl_handle_eq_t eq, ptl_event_kind_t kind)
{
	ptl_event_t e;

	do
		must("PtlEQWait", PtlEQWait(eq, &e));
	while (e.type != kind);
	return e;
}

int main(void)
{
	const ptl_process_id_t anybody = {PTL_NID_ANY, PTL_PID_ANY};
	char inbox[ROOM] = "", line[ROOM];
	int interfaces;
	unsigned rank, size;
	ptl_process_id_t next;
	ptl_handle_ni_t ni;
	ptl_handle_eq_t arrivals, departures;
	ptl_handle_me_t entry;
	ptl_handle_md_t target, source;
	ptl_event_t e;

	/* 1. Join the job. */
	must("PtlInit", PtlInit(&interfaces));
	must("PtlNIInit", PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni));
	must("PtlGetRank", PtlGetRank(ni, &rank, &size));
	must("PtlGetRankId", PtlGetRankId(ni, (rank + 1) % size, &next));

	/* 2. A target: a match entry of a portal, memory behind it, and a queue of events. */
	must("PtlEQAlloc", PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &arrivals));
	must("PtlMEAttach", PtlMEAttach(ni, PORTAL, anybody, BITS, 0, PTL_RETAIN, PTL_INS_AFTER, &entry));
	must("PtlMDAttach", PtlMDAttach(entry, memory(inbox, ROOM, PTL_MD_OP_PUT, arrivals), PTL_RETAIN, &target));

	/* 3. Everybody has a target before anybody puts. */
	cnos_barrier_init(ni);
	cnos_barrier();

	/* 4. A source, and the put. */
	snprintf(line, ROOM, "greetings from rank %u", rank);
	must("PtlEQAlloc", PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &departures));
	must("PtlMDBind", PtlMDBind(ni, memory(line, strlen(line) + 1, 0, departures), PTL_RETAIN, &source));
	must("PtlPut", PtlPut(source, PTL_ACK_REQ, next, PORTAL, 0, BITS, 0, rank));

	/* 5. The ack says that it is there; the event of the target, that one has come here. */
	event(departures, PTL_EVENT_ACK);
	e = event(arrivals, PTL_EVENT_PUT_END);
	printf("rank %u of %u: %s; %d bytes, header data %d\n", rank, size, inbox, (int)e.mlength, (int)e.hdr_data);

	/* 6. Leave together. */
	cnos_barrier();
	must("PtlNIFini", PtlNIFini(ni));
	PtlFini();
	return 0;
}
