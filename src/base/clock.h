/* Clocks, the monotonic one before all: read by owners of a loop and handed to everything below them as an argument. */
#ifndef POSTRIDER_BASE_CLOCK_H
#define POSTRIDER_BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_NEVER INT64_MAX

int64_t clock_ms(void);         /* includes time that the machine was suspended */
int64_t clock_us(void);
int64_t clock_today_us(void);   /* the time of day, since 1970: to compare with other clocks, never to wait by */

#endif
