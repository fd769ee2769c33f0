/* Who may read us.
 *
 * Without a token only this machine can (config/rules.c sees to it), and a web page in its browser must not: a page of a
 * foreign name whose address is made to be ours (DNS rebinding) shows by its Host, which is then that name. With a token the
 * Host does not matter, since such a page does not have it; Prometheus may come by whatever name it knows. */
#ifndef POSTRIDER_OBSERVE_HTTP_GUARD_H
#define POSTRIDER_OBSERVE_HTTP_GUARD_H

#include <stdbool.h>

#include "observe/http_request.h"

enum http_admission { HTTP_ADMITTED, HTTP_WRONG_HOST, HTTP_WRONG_TOKEN, HTTP_NO_TOKEN_FILE };

/* `token_file` "" : none. `open`: the path is for everybody who can reach us. */
enum http_admission http_guard(const struct http_request *r, const char *token_file, bool open);

#endif
