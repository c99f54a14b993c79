/* A path that some programs include. */
#include "../../p3rt/p3rt.h"
