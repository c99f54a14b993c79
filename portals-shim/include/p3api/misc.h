/* Names of codes, progress and dumps. */
#ifndef PORTOLAN_P3API_MISC_H
#define PORTOLAN_P3API_MISC_H

#include <p3api/types.h>

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

#ifdef __cplusplus
}
#endif

#endif
