/* Where a service of AWS is. */
#ifndef POSTRIDER_AWS_ENDPOINT_H
#define POSTRIDER_AWS_ENDPOINT_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"

struct aws_endpoint {
	char *url;                      /* "https://sqs.eu-central-1.amazonaws.com/" */
	char *host;                     /* as the header Host has it */
	const char *service;
	const char *region;
};

/* "https://sqs.eu-central-1.amazonaws.com"; the caller frees. */
char *aws_service_url(const char *service, const char *region);
/* The region by our setting or the environment, or NULL. It lives as long as the setting. */
const char *aws_region(const char *setting);

/* `url` is "" for AWS itself. Plain text leaves this machine only with `tls` off: ERROR_CONFIG otherwise. The caller releases
 * *ret, which borrows service and region. */
bool aws_endpoint_read(const char *url, enum sink_tls tls, const char *service, const char *region, struct aws_endpoint *ret,
		       struct error *err);
void aws_endpoint_release(struct aws_endpoint *e);

#endif
