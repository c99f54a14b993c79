/* A path that some programs include. */
#include "../p3nal_ibng.h"
