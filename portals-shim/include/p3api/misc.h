/* Names of codes, progress, dumps; extensions of Portolan. */
#ifndef PORTOLAN_P3API_MISC_H
#define PORTOLAN_P3API_MISC_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library also has `ptl_event_str`, the names of event kinds indexed by kind. It is not declared
 * here: programs declare it themselves, some as `char *[]` and some as `const char *[]`. */

/* Programs built for Cray's compute and service nodes define functions of these names themselves. */
#if !defined(__LIBCATAMOUNT__) && !defined(__CRAYXT_COMPUTE_LINUX_TARGET) && \
	!defined(__CRAYXT_SERVICE)
const char *PtlErrorStr(unsigned int ptl_errno);
const char *PtlEventKindStr(ptl_event_kind_t ev_kind);
const char *PtlNIFailStr(ptl_handle_ni_t ni, ptl_ni_fail_t nal_errno);
#endif

/* Moves data for at most `timeout` milliseconds; only for programs that make no other call. */
int PtlProgress(ptl_handle_any_t handle, ptl_time_t timeout);

/* Prints to standard output. */
int PtlNIEqDump(ptl_handle_ni_t ni_handle);
int PtlTblDump(ptl_handle_ni_t ni, int pt_index);
int PtlMEDump(ptl_handle_me_t me_handle);

/* Extensions of Portolan; a program asks for these macros. */

/* The clock of an interface, nanoseconds from an arbitrary start, and what it counts: `kind` may be NULL.
 * PTL_CLOCK_VIRTUAL is the time of the SeaStar model, which stands still between calls of a rank; a loop that
 * waits for a time ends, since after 1000 readings of an instant some take time. */
#define PTL_HAVE_NI_CLOCK 1
#define PTL_CLOCK_HOST 0
#define PTL_CLOCK_VIRTUAL 1
int PtlNIClock(ptl_handle_ni_t ni_handle, uint64_t *nanoseconds, int *kind);

/* The processor of this rank computes for so many nanoseconds of virtual time; interrupts come on top. Nothing
 * happens where time is not virtual. */
#define PTL_HAVE_NI_COMPUTE 1
int PtlNICompute(ptl_handle_ni_t ni_handle, uint64_t nanoseconds);

#ifdef __cplusplus
}
#endif

#endif
