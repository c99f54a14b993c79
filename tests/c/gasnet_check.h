/* What programs of gasnet_*.c look at calls with: what is not so ends the job. */
#ifndef GASNET_CHECK_H
#define GASNET_CHECK_H

#include <gasnet.h>
#include <stdio.h>

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: node %d: not so: %s\n", __FILE__, __LINE__,      \
				(int)gasnet_mynode(), #condition);                              \
			fflush(NULL);                                                           \
			gasnet_exit(1);                                                         \
		}                                                                               \
	} while (0)
#define OK(call) CHECK((call) == GASNET_OK)

#endif
