/* What a fixed Ceph would see: the first address that this machine listens on, first.
 *
 * Ceph 18.2.7's pick_iface compares an OSD's address with the first entry of getifaddrs
 * alone, which is loopback's link (https://tracker.ceph.com/issues/77847), so that no OSD pins
 * itself to a NUMA node. Preloaded into OSDs, this moves the entry that they look for to the front.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ifaddrs.h>
#include <string.h>
#include <sys/socket.h>

int getifaddrs(struct ifaddrs **list)
{
	int (*real)(struct ifaddrs **) = (int (*)(struct ifaddrs **)) dlsym(RTLD_NEXT, "getifaddrs");
	int failed = real(list);
	struct ifaddrs *before, *at;

	if (failed || !*list)
		return failed;
	for (before = *list; (at = before->ifa_next); before = at) {
		if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && strcmp(at->ifa_name, "lo")) {
			struct ifaddrs first = **list, found = *at;
			/* glibc frees the block that the first entry begins: swap contents, keep the chain. */
			found.ifa_next = first.ifa_next;
			first.ifa_next = at->ifa_next;
			**list = found;
			*at = first;
			return 0;
		}
	}
	return 0;
}
