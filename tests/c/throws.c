/* A handler of an event queue that does not return: as C++ it throws, as C it ends its thread. */
#include "check.h"

#include <pthread.h>

static char bytes[8];

static void handler(ptl_event_t *event)
{
	(void)event;
#ifdef __cplusplus
	throw 7;
#else
	pthread_exit(NULL);
#endif
}

int main(void)
{
	ptl_handle_ni_t ni = open_default();
	ptl_process_id_t own;
	ptl_handle_eq_t eq;
	ptl_handle_md_t md;
	ptl_event_t event;

	OK(PtlGetId(ni, &own));
	OK(PtlEQAlloc(ni, 8, handler, &eq));
	OK(PtlMDBind(ni, describe(bytes, sizeof bytes, 0, eq), PTL_RETAIN, &md));
	OK(PtlPut(md, PTL_NO_ACK_REQ, own, 4, 0, 0, 0, 0));
	OK(PtlEQWait(eq, &event));
	return 0;
}
