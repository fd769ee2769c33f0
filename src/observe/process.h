/* What the kernel says of this process. */
#ifndef POSTRIDER_OBSERVE_PROCESS_H
#define POSTRIDER_OBSERVE_PROCESS_H

struct process_figures {
	double cpu_seconds;
	double resident_bytes;
	double open_fds;
	double max_fds;
	double start_time;              /* seconds since 1970 */
};

/* What cannot be read is -1. */
struct process_figures process_read(void);

#endif
