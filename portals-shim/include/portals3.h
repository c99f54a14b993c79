/* Portals 3.3, whole. */
#ifndef PORTOLAN_PORTALS3_H
#define PORTOLAN_PORTALS3_H

#include "p3/errno.h"
#include "p3/nal_types.h"
#include "p3api/types.h"
#include "p3api/api.h"
#include "p3api/debug.h"
#include "p3api/misc.h"
#include "p3nal_portolan.h"

#endif
