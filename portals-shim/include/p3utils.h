/* A time limit, as small Portals programs use it. */
#ifndef PORTOLAN_P3UTILS_H
#define PORTOLAN_P3UTILS_H

#include <stddef.h>
#include <sys/time.h>

/* When the time is up. */
typedef struct {
	struct timeval at;
	int set;
} timeout_val_t;

/* The time is up `milliseconds` from now. */
static __inline__ void set_timeout(timeout_val_t *timeout, int milliseconds)
{
	gettimeofday(&timeout->at, NULL);
	timeout->at.tv_sec += milliseconds / 1000;
	timeout->at.tv_usec += (milliseconds % 1000) * 1000L;
	if (timeout->at.tv_usec >= 1000000L) {
		timeout->at.tv_usec -= 1000000L;
		timeout->at.tv_sec += 1;
	}
	timeout->set = 1;
}

/* The time is never up. */
static __inline__ void clear_timeout(timeout_val_t *timeout)
{
	timeout->set = 0;
}

/* Whether the time is up. */
static __inline__ int test_timeout(const timeout_val_t *timeout)
{
	struct timeval now;

	if (!timeout->set)
		return 0;
	gettimeofday(&now, NULL);
	if (now.tv_sec != timeout->at.tv_sec)
		return now.tv_sec > timeout->at.tv_sec;
	return now.tv_usec >= timeout->at.tv_usec;
}

#endif
