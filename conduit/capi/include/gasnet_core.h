/* The core API is declared by gasnet.h; programs and their configure scripts look for this file beside it. */
#ifndef GASNET_CORE_H
#define GASNET_CORE_H
#include "gasnet.h"
#endif
