/* A path that some programs include. */
#include "../../p3api/debug.h"
