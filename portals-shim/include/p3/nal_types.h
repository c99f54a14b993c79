/* Numbers of network interfaces. */
#ifndef PORTOLAN_P3_NAL_TYPES_H
#define PORTOLAN_P3_NAL_TYPES_H

/* No interface. */
#define PTL_NALTYPE_NONE 0

/* The interface of the job: whichever fabric the launcher chose. */
#define PTL_NALTYPE_PORTOLAN 0xf0f0f100

/* An interface that reaches only its own process. */
#define PTL_NALTYPE_SELF 0xf0f0f101

/* Numbers that programs know from elsewhere. UTCP0 and IBNG0 are the interface of the job too;
 * the others are refused with PTL_IFACE_INVALID. */
#define PTL_NALTYPE_UTCP 0xf0f0f000
#define PTL_NALTYPE_UTCP0 0xf0f0f000
#define PTL_NALTYPE_UTCP1 0xf0f0f001
#define PTL_NALTYPE_UTCP2 0xf0f0f002
#define PTL_NALTYPE_UTCP3 0xf0f0f003
#define PTL_NALTYPE_IBNG 0xf0f0f050
#define PTL_NALTYPE_IBNG0 0xf0f0f050

#define PTL_MAX_INTERFACES 8

#endif
