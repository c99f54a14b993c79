/* Interface names; see <p3nal_portolan.h>. DART includes this file where it is not made for Cray's machines. */
#ifndef PORTOLAN_P3NAL_TCP_H
#define PORTOLAN_P3NAL_TCP_H

#include "p3nal_utcp.h"

#endif
