/* What the HTTP server of a relay serves. */
#ifndef POSTRIDER_OBSERVE_ROUTES_H
#define POSTRIDER_OBSERVE_ROUTES_H

#include "observe/http_server.h"

/* Their `arg` is a struct observed. */
extern const struct http_route observe_routes[];

#endif
