/* The path that Cray's programs include; the names are in <p3nal_portolan.h>. */
#include "../portals3.h"
