#include "observe/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STAT_START_TIME 20      /* blanks between the name in brackets and that field of /proc/self/stat */

static double resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long pages = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%*s %ld", &pages) != 1)
		pages = -1;
	fclose(f);
	return pages < 0 ? -1 : (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	double n = -3;          /* . and .. and the one that reads it */

	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The kernel counts ticks since the boot. */
static double start_time(void)
{
	char text[1024] = "";
	struct timespec now, since_boot;
	unsigned long long ticks;
	FILE *f = fopen("/proc/self/stat", "re");
	char *p;

	if (!f)
		return -1;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	p = strrchr(text, ')');
	for (int i = 0; p && i < STAT_START_TIME; i++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, "%llu", &ticks) != 1)
		return -1;
	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &since_boot);
	return (double)(now.tv_sec - since_boot.tv_sec) + (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

struct process_figures process_read(void)
{
	struct rusage usage;
	struct rlimit fds;

	getrusage(RUSAGE_SELF, &usage);
	getrlimit(RLIMIT_NOFILE, &fds);
	return (struct process_figures){
		.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
		.resident_bytes = resident_bytes(),
		.open_fds = open_fds(),
		.max_fds = (double)fds.rlim_cur,
		.start_time = start_time(),
	};
}
