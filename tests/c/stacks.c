/* A thread with the smallest stack that the system gives makes calls: long puts, gets and waits. */
#include <limits.h>
#include <pthread.h>

#include "check.h"

enum { PORTAL = 5, LENGTH = 200000 };

static unsigned char there[LENGTH], here[LENGTH];
static ptl_handle_ni_t ni;
static ptl_process_id_t peer;

static void wait_for(ptl_handle_eq_t eq, ptl_event_kind_t last)
{
	ptl_event_t e;
	int which;

	do
		OK(PtlEQPoll(&eq, 1, PTL_TIME_FOREVER, &e, &which));
	while (e.type != last);
	CHECK(e.ni_fail_type == PTL_NI_OK);
}

static void *calls(void *unused)
{
	ptl_handle_me_t me;
	ptl_handle_md_t md, source;
	ptl_handle_eq_t eq;

	OK(PtlEQAlloc(ni, 64, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlMEAttach(ni, PORTAL, anyone, 0, 0, PTL_RETAIN, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, describe(there, LENGTH, PTL_MD_OP_PUT | PTL_MD_OP_GET | PTL_MD_MANAGE_REMOTE, PTL_EQ_NONE),
		       PTL_RETAIN, &md));
	OK(PtlMDBind(ni, describe(here, LENGTH, 0, eq), PTL_RETAIN, &source));
	memset(here, 7, LENGTH);
	OK(PtlPut(source, PTL_ACK_REQ, peer, PORTAL, 0, 0, 0, 0));
	wait_for(eq, PTL_EVENT_ACK);
	memset(here, 0, LENGTH);
	OK(PtlGet(source, peer, PORTAL, 0, 0, 0));
	wait_for(eq, PTL_EVENT_REPLY_END);
	CHECK(here[0] == 7 && here[LENGTH - 1] == 7);
	OK(PtlMDUnlink(source));
	OK(PtlMEUnlink(me));
	return unused;
}

int main(void)
{
	pthread_attr_t small;
	pthread_t thread;

	ni = open_default();
	OK(PtlGetId(ni, &peer));
	CHECK(pthread_attr_init(&small) == 0);
	CHECK(pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) == 0);
	CHECK(pthread_create(&thread, &small, calls, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(PtlNIFini(ni));
	return 0;
}
