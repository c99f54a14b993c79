/* Ranks of a job. */
#ifndef PORTOLAN_P3RT_H
#define PORTOLAN_P3RT_H

#include "../p3api/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With rank and size (unsigned)-1 they come from PTL_MY_RID, PTL_NIDMAP and PTL_PIDMAP where any of
 * these is set, and from the launcher otherwise. Before PtlNIInit the handle is PTL_INVALID_HANDLE,
 * and what is set belongs to the next interface opened. */
int PtlSetRank(ptl_handle_ni_t ni_handle, unsigned int rank, unsigned int size);
int PtlSetNIDMap(ptl_handle_ni_t ni_handle, ptl_nid_t *map, unsigned int size);
int PtlSetPIDMap(ptl_handle_ni_t ni_handle, ptl_pid_t *map, unsigned int size);
/* For interfaces opened later. */
int PtlSetJID(ptl_jid_t jid);

int PtlGetRank(ptl_handle_ni_t ni_handle, unsigned int *rank, unsigned int *size);
int PtlGetRankId(ptl_handle_ni_t ni_handle, unsigned int rank, ptl_process_id_t *id);
int PtlGetNIDMap(ptl_handle_ni_t ni_handle, ptl_nid_t *map, unsigned int size);
int PtlGetPIDMap(ptl_handle_ni_t ni_handle, ptl_pid_t *map, unsigned int size);

#ifdef __cplusplus
}
#endif

#endif
