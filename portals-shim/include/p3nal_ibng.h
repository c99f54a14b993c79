/* Interface names; see <p3nal_portolan.h>. */
#ifndef PORTOLAN_P3NAL_IBNG_H
#define PORTOLAN_P3NAL_IBNG_H

#include "p3api/types.h"
#include "p3nal_portolan.h"

#endif
