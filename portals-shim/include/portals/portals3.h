/* The path that Cray's programs include. */
#include "../portals3.h"
