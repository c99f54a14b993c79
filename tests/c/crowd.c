/* A wait ends in its time although other threads look into queues all the while. */
#include <pthread.h>

#include "check.h"

enum { OTHERS = 3, MILLISECONDS = 20 };

static volatile int over;

static void *looks(void *queue)
{
	ptl_event_t e;

	while (!over) GIVES(PTL_EQ_EMPTY, PtlEQGet(*(ptl_handle_eq_t *)queue, &e));
	return NULL;
}

int main(void)
{
	ptl_handle_ni_t ni = open_default();
	ptl_handle_eq_t queues[OTHERS + 1];
	pthread_t threads[OTHERS];
	ptl_event_t e;
	int which, i;

	for (i = 0; i <= OTHERS; i++) OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &queues[i]));
	for (i = 0; i < OTHERS; i++) CHECK(pthread_create(&threads[i], NULL, looks, &queues[i]) == 0);
	GIVES(PTL_EQ_EMPTY, PtlEQPoll(&queues[OTHERS], 1, MILLISECONDS, &e, &which));
	over = 1;
	for (i = 0; i < OTHERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
	OK(PtlNIFini(ni));
	return 0;
}
