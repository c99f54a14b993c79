/* The blocks with which programs bridge the spellings of different systems compile after our
 * headers, as C and as C++, and leave the values right (rows 1 to 4 and 10 of
 * docs/src/portals-differences.md). */
#include <portals/portals3.h>
#include <portals/nal.h>
#include <p3nal_utcp.h>
#include <p3nal_ibng.h>
#include <p3nal_portolan.h>
#include <p3api/debug.h>
#include <p3/debug.h>
#include <p3/errno.h>
#include <p3/nal_types.h>
#include <p3utils.h>
#include <p3rt/p3rt.h>
#include <catamount/cnos_mpi_os.h>
#include <pctmbox.h>

/* Rule 68: physical addresses are for kernels; programs define the missing name as 0. */
#ifdef PTL_MD_PHYS
#error "PTL_MD_PHYS has no meaning here"
#endif
#ifndef PTL_IFACE_DUP
#define PTL_IFACE_DUP 999999
#endif
#ifndef PTL_NO_ACK_REQ
#define PTL_NO_ACK_REQ PTL_NOACK_REQ
#endif
#ifndef PTL_NOACK_REQ
#define PTL_NOACK_REQ PTL_NO_ACK_REQ
#endif
#ifndef PTL_EQ_HANDLER_NONE
#define PTL_EQ_HANDLER_NONE NULL
#endif
#ifndef PTL_MD_EVENT_AUTO_UNLINK_ENABLE
#define PTL_MD_EVENT_AUTO_UNLINK_ENABLE 0
#endif
#ifndef PTL_MD_EVENT_MANUAL_UNLINK_ENABLE
#define PTL_MD_EVENT_MANUAL_UNLINK_ENABLE 0
#endif
#ifndef PTL_MD_FLAG_AUTO_UNLINK
#define PTL_MD_FLAG_AUTO_UNLINK 0
#endif
#ifndef PTL_MAX_TRANS_SZ
#define PTL_MAX_TRANS_SZ ((size_t)1 << 31)
#endif
#ifndef PTL_EQ_IN_USE
#define PTL_EQ_IN_USE 999998
#endif
#ifndef PTL_VAL_FAILED
#define PTL_VAL_FAILED PTL_NO_SPACE
#endif
#ifndef PTL_IFACE_DEFAULT
#error "no default interface"
#endif
#ifndef PtlHandleIsEqual
#define PtlHandleIsEqual(a, b) ((a) == (b))
#endif

/* Prototypes and tables that programs declare themselves. */
#ifdef __cplusplus
extern "C" {
#endif
extern const char *ptl_err_str[];
extern const char *ptl_event_str[];
int cnos_get_rank(void);
int cnos_barrier(void);
#ifdef __cplusplus
}
#endif

static const ptl_interface_t interfaces[] = {
	PTL_IFACE_DEFAULT,
	PTL_IFACE_UTCP,
	CRAY_QK_NAL,
	CRAY_UK_SSNAL,
	CRAY_USER_NAL,
	CRAY_KERN_NAL,
	CRAY_ACCEL,
	IFACE_FROM_BRIDGE_AND_NALID(PTL_BRIDGE_UK, PTL_IFACE_SS),
	IFACE_FROM_BRIDGE_AND_NALID(PTL_BRIDGE_QK, PTL_IFACE_SS_ACCEL),
	PTL_IFACE_SS,
	PTL_IFACE_SS_ACCEL,
};

static void handler(ptl_event_t *event)
{
	(void)event;
}

/* Scenario 105. */
int main(void)
{
	ptl_eq_handler_t none = PTL_EQ_HANDLER_NONE, some = handler;
	ptl_err_t code = PTL_OK;
	timeout_val_t timeout;
	unsigned i;

	if (none || !some || code)
		return 1;
#if defined(CRAY_ACCEL)
	if (ACCEL_PTLS_PID_SPACE_OFFSET != 0)
		return 2;
#endif
	if (PTL_NO_ACK_REQ != 1 || PTL_NOACK_REQ != 1)
		return 2;
	if (NALID_FROM_IFACE(interfaces[0]) != PTL_IFACE_SS || PTL_IFACE_SS == PTL_IFACE_SS_ACCEL)
		return 3;
	if (PTL_IFACE_DUP == PTL_OK || PTL_NOINIT != PTL_NO_INIT || PTL_ILL_MD != PTL_MD_ILLEGAL)
		return 3;
	/* All names of the job's interface are accepted and are one interface. */
	{
		int max_interfaces;
		ptl_handle_ni_t first, again;

		if (PtlInit(&max_interfaces) != PTL_OK)
			return 4;
		if (PtlNIInit(interfaces[0], PTL_PID_ANY, NULL, NULL, &first) != PTL_OK)
			return 5;
		for (i = 1; i < sizeof interfaces / sizeof *interfaces; i++)
			if (PtlNIInit(interfaces[i], PTL_PID_ANY, NULL, NULL, &again) != PTL_OK ||
			    !PtlHandleIsEqual(first, again))
				return 6;
		if (cnos_launcher() != CNOS_LAUNCHER_APRUN)
			return 7;
		PtlFini();
	}
	set_timeout(&timeout, 3600 * 1000);
	if (test_timeout(&timeout))
		return 8;
	set_timeout(&timeout, 0);
	if (!test_timeout(&timeout))
		return 9;
	clear_timeout(&timeout);
	return test_timeout(&timeout) ? 10 : 0;
}
