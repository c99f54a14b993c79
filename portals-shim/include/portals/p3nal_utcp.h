/* A path that some programs include. */
#include "../p3nal_utcp.h"
