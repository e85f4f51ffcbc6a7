/* Preloaded into fio, has its thread compute for 4 ms on each read of an RBD volume.
 *
 * fio's own thinktime_spin sleeps for ever after a spin that took longer than thinktime.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

typedef int aio_read(void *, unsigned long long, unsigned long, char *, void *);

static long long computed_us(void)
{
	struct timespec at;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

int rbd_aio_read(void *image, unsigned long long offset, unsigned long length, char *into, void *done)
{
	aio_read *real = (aio_read *) dlsym(RTLD_NEXT, "rbd_aio_read");
	long long ends = computed_us() + 4000;

	while (computed_us() < ends)
		;
	return real(image, offset, length, into, done);
}
