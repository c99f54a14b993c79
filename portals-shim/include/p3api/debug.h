/* Debug masks. The mask is kept and given back; what the library says is chosen with
 * PORTOLAN_LOG. */
#ifndef PORTOLAN_P3API_DEBUG_H
#define PORTOLAN_P3API_DEBUG_H

#include "types.h"

#define PTL_DBG_NONE 0x00000000
#define PTL_DBG_ALL 0x0000ffff
#define PTL_DBG_API 0x00000001
#define PTL_DBG_PARSE 0x00000002
#define PTL_DBG_MOVE 0x00000004
#define PTL_DBG_DROP 0x00000008
#define PTL_DBG_REQUEST 0x00000010
#define PTL_DBG_DELIVERY 0x00000020
#define PTL_DBG_MD 0x00000040
#define PTL_DBG_ME 0x00000080
#define PTL_DBG_UNLINK 0x00000100
#define PTL_DBG_EQ 0x00000200
#define PTL_DBG_EVENT 0x00000400
#define PTL_DBG_MEMORY 0x00000800
#define PTL_DBG_SETUP 0x00001000
#define PTL_DBG_SHUTDOWN 0x00002000
#define PTL_DBG_NI_ALL 0xffff0000
/* Cray's names. */
#define PTL_DEBUG_NONE PTL_DBG_NONE
#define PTL_DEBUG_ALL PTL_DBG_ALL
#define PTL_DEBUG_DROP PTL_DBG_DROP
#define PTL_DEBUG_NI_ALL PTL_DBG_NI_ALL

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the mask of an interface, or with PTL_INVALID_HANDLE of interfaces opened later; returns the
 * one before. */
unsigned int PtlNIDebug(ptl_handle_ni_t ni, unsigned int mask);

#ifdef __cplusplus
}
#endif

#endif
