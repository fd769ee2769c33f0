#include "relay/systemd.h"

#ifdef HAVE_SYSTEMD

#include <systemd/sd-daemon.h>

void systemd_tell(const char *state)
{
	sd_notify(0, state);
}

int64_t systemd_watchdog_ms(void)
{
	uint64_t usec = 0;

	return sd_watchdog_enabled(0, &usec) > 0 ? (int64_t)(usec / 1000 / 2) : 0;
}

#else

#include "base/macros.h"

void systemd_tell(const char *state _unused_)
{
}

int64_t systemd_watchdog_ms(void)
{
	return 0;
}

#endif
