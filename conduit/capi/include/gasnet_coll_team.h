/* Teams are in gasnet_coll.h; this name is for programs that include it. */
#ifndef GASNET_COLL_TEAM_H
#define GASNET_COLL_TEAM_H
#include "gasnet_coll.h"
#endif
