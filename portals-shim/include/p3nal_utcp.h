/* Interface names; see <p3nal_portolan.h>. */
#ifndef PORTOLAN_P3NAL_UTCP_H
#define PORTOLAN_P3NAL_UTCP_H

#include "p3api/types.h"
#include "p3nal_portolan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The node id of this process, before PtlInit too; `interface`, the name of a network interface, makes no
 * difference. Not declared by the reference either: programs do so themselves. */
int p3tcp_my_nid(const char *interface, unsigned int *nid);
unsigned int utcp_my_nid(const char *interface);

#ifdef __cplusplus
}
#endif

#endif
