/* Preloaded into valkey-server: its wall clock reads the time, in nanoseconds
 * since the epoch, from the shared file that EMQ_CLOCK names. A value of 0 is
 * the real time. Monotonic clocks are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long *shared;

__attribute__((constructor)) static void attach(void) {
	const char *path = getenv("EMQ_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) return;
	void *page = mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED) shared = page;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	if (shared && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		long long now = __atomic_load_n(shared, __ATOMIC_ACQUIRE);
		if (now) {
			ts->tv_sec = now / 1000000000;
			ts->tv_nsec = now % 1000000000;
			return 0;
		}
	}
	return syscall(SYS_clock_gettime, id, ts);
}

int gettimeofday(struct timeval *tv, void *zone) {
	struct timespec ts;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (out) *out = ts.tv_sec;
	return ts.tv_sec;
}
