/* Names of interfaces. There is one fabric in a job, chosen when it is started; all names that ask
 * for a network mean it. */
#ifndef PORTOLAN_P3NAL_PORTOLAN_H
#define PORTOLAN_P3NAL_PORTOLAN_H

#include "p3/nal_types.h"

#ifndef PTL_IFACE_DEFAULT
#define PTL_IFACE_DEFAULT PTL_NALTYPE_PORTOLAN
#endif
#define PTL_IFACE_SELF PTL_NALTYPE_SELF

#define PTL_IFACE_UTCP PTL_NALTYPE_UTCP
#define PTL_IFACE_UTCP0 PTL_NALTYPE_UTCP0
#define PTL_IFACE_UTCP1 PTL_NALTYPE_UTCP1
#define PTL_IFACE_UTCP2 PTL_NALTYPE_UTCP2
#define PTL_IFACE_UTCP3 PTL_NALTYPE_UTCP3
#define PTL_IFACE_IBNG PTL_NALTYPE_IBNG
#define PTL_IFACE_IBNG0 PTL_NALTYPE_IBNG0

/* Cray's names. */
#define CRAY_QK_NAL PTL_NALTYPE_PORTOLAN
#define CRAY_UK_SSNAL PTL_NALTYPE_PORTOLAN
#define CRAY_USER_NAL PTL_NALTYPE_PORTOLAN
#define CRAY_KERN_NAL PTL_NALTYPE_PORTOLAN
#define CRAY_ACCEL PTL_NALTYPE_PORTOLAN
/* What is added to the process ids of peers on an accelerated interface: here they are the same. */
#define ACCEL_PTLS_PID_SPACE_OFFSET 0
#define PTL_BRIDGE_QK 0
#define PTL_BRIDGE_UK 1
/* Programs for Catamount open these as they are; they differ, since programs ask which one they have. */
#define PTL_IFACE_SS PTL_NALTYPE_PORTOLAN
#define PTL_IFACE_SS_ACCEL PTL_NALTYPE_IBNG0
#define IFACE_FROM_BRIDGE_AND_NALID(bridge, nalid) PTL_NALTYPE_PORTOLAN
#define NALID_FROM_IFACE(interface) PTL_IFACE_SS

#endif
