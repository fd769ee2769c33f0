/* What systemd is told of the process, where it started us and the program was built for it; otherwise nothing happens. */
#ifndef POSTRIDER_RELAY_SYSTEMD_H
#define POSTRIDER_RELAY_SYSTEMD_H

#include <stdint.h>

void systemd_tell(const char *state);
/* How often its watchdog is to hear from us, half of what it allows; 0: it has none. */
int64_t systemd_watchdog_ms(void);

#endif
