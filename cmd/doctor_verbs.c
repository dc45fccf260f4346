/* SPDX-License-Identifier: MIT */
/*
 * The doctor's look at RDMA: is the provider built in, which devices has the kernel, in what state
 * are their ports, what addresses (GIDs) do they have, may we open them, may we lock memory; and a
 * connection to itself over each device that has an IPv4 address.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "doctor.h"

#define SYS_DEVICES  "/sys/class/infiniband"
#define DEVICES_MAX  16u
#define PORTS_MAX    4u
#define GIDS_MAX     256u
#define NAME_BYTES   64u
#define MEMLOCK_GOOD (64ull << 20)
#define CAP_IPC_LOCK 14

static const char *sudo_prefix(void)
{
	return geteuid() ? "sudo " : "";
}

/* Names in a folder but . and .., at most max. */
static unsigned dir_list(const char *path, char names[][NAME_BYTES], unsigned max)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	for (const struct dirent *e; dir && n < max && (e = readdir(dir));)
		if (e->d_name[0] != '.' && strlen(e->d_name) < NAME_BYTES)
			strcpy(names[n++], e->d_name);
	if (dir)
		closedir(dir);
	return n;
}

/* ---- what the kernel could do ---- */

static bool module_listed(const char *file, const char *module)
{
	struct utsname os;
	char path[256], line[512];
	bool found = false;
	FILE *f;

	if (uname(&os))
		return false;
	snprintf(path, sizeof(path), "/lib/modules/%s/%s", os.release, file);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, ":\n")] = '\0'; /* what it depends on comes after the colon */
		found = strstr(line, module);
	}
	if (f)
		fclose(f);
	return found;
}

static bool module_loaded(const char *module)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/%s", module);
	return !access(path, F_OK);
}

static bool module_there(const char *module)
{
	char file[NAME_BYTES];

	snprintf(file, sizeof(file), "/%s.ko", module);
	return module_loaded(module) || module_listed("modules.dep", file) ||
	       module_listed("modules.builtin", file);
}

/* An Ethernet interface that is up, for the command that makes a Soft-RoCE device of it. */
static void find_netdev(char out[NAME_BYTES])
{
	char names[64][NAME_BYTES], type[16], state[16];
	const unsigned n = dir_list("/sys/class/net", names, 64);

	strcpy(out, "eth0");
	for (unsigned i = 0; i < n; i++)
		if (doctor_read(type, sizeof(type), "/sys/class/net/%s/type", names[i]) &&
		    !strcmp(type, "1") &&
		    doctor_read(state, sizeof(state), "/sys/class/net/%s/operstate", names[i]) &&
		    strcmp(state, "down")) {
			strcpy(out, names[i]);
			return;
		}
}

static void check_soft_roce(struct doctor *d)
{
	char netdev[NAME_BYTES];
	struct utsname os;
	struct finding *f;

	find_netdev(netdev);
	if (module_there("rdma_rxe")) {
		f = doctor_say(d, DOCTOR_NOTE, "verbs", "Soft-RoCE",
			       "the kernel can be an RDMA device over Ethernet (rdma_rxe%s)",
			       module_loaded("rdma_rxe") ? ", loaded" : "");
		doctor_fix(f,
			   "%smodprobe -a rdma_rxe rdma_ucm && "
			   "%srdma link add rxe0 type rxe netdev %s",
			   sudo_prefix(), sudo_prefix(), netdev);
		return;
	}
	f = doctor_say(d, DOCTOR_NOTE, "verbs", "Soft-RoCE",
		       "this kernel (%s) has no rdma_rxe module; in Gannet's source tree "
		       "tests/vm/run boots one that has it",
		       uname(&os) ? "?" : os.release);
	doctor_fix(f, "tests/vm/run -- build/gannet doctor");
}

/* ---- permissions and limits ---- */

static void check_node(struct doctor *d, const char *path, const char *module)
{
	struct finding *f;

	if (access(path, F_OK)) {
		f = doctor_say(d, DOCTOR_NO, "verbs", "device file", "%s is not there", path);
		doctor_fix(f,
			   "%smodprobe %s (in a container: run it with --device=/dev/infiniband)",
			   sudo_prefix(), module);
	} else if (access(path, R_OK | W_OK)) {
		f = doctor_say(d, DOCTOR_NO, "verbs", "device file", "%s: %s", path,
			       gn_strerror(-errno));
		doctor_fix(f, "sudo chmod a+rw %s (or a udev rule that does)", path);
	} else {
		doctor_say(d, DOCTOR_OK, "verbs", "device file", "%s can be opened", path);
	}
}

static bool may_lock_all(void)
{
	char line[256];
	unsigned long long caps = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "CapEff:", 7))
			caps = strtoull(line + 7, NULL, 16);
	if (f)
		fclose(f);
	return caps >> CAP_IPC_LOCK & 1;
}

static void check_memlock(struct doctor *d)
{
	struct rlimit limit;
	struct finding *f;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	if (limit.rlim_cur == RLIM_INFINITY || may_lock_all()) {
		doctor_say(d, DOCTOR_OK, "verbs", "locked memory", "%s",
			   limit.rlim_cur == RLIM_INFINITY ? "without limit" :
							     "CAP_IPC_LOCK lifts the limit");
		return;
	}
	f = doctor_say(d, limit.rlim_cur < MEMLOCK_GOOD ? DOCTOR_NOTE : DOCTOR_OK, "verbs",
		       "locked memory",
		       "at most %llu KiB; registered memory counts, twice if it has remote rights",
		       (unsigned long long)limit.rlim_cur >> 10);
	if (limit.rlim_cur < MEMLOCK_GOOD)
		doctor_fix(f, "ulimit -l unlimited (as root, in /etc/security/limits.d, or "
			      "LimitMEMLOCK=infinity in a systemd unit)");
}

/* ---- devices ---- */

/* GIDs are eight groups of four hex digits: all of them zero, or ::ffff:a.b.c.d for IPv4. */
static bool gid_ipv4(const char *gid, char out[INET_ADDRSTRLEN])
{
	struct in6_addr addr;

	if (inet_pton(AF_INET6, gid, &addr) != 1 || !IN6_IS_ADDR_V4MAPPED(&addr))
		return false;
	return inet_ntop(AF_INET, &addr.s6_addr[12], out, INET_ADDRSTRLEN);
}

struct gids {
	unsigned n, v2;
	char best[112];		    /* what the best one looks like */
	char ipv4[INET_ADDRSTRLEN]; /* empty without a RoCE v2 GID of an IPv4 address */
};

static void port_read_gids(const char *device, const char *port, struct gids *out)
{
	static const char unset[] = "0000:0000:0000:0000:0000:0000:0000:0000";

	*out = (struct gids){.n = 0};
	for (unsigned i = 0; i < GIDS_MAX; i++) {
		char gid[64], type[32] = "", ip[INET_ADDRSTRLEN];

		if (!doctor_read(gid, sizeof(gid), SYS_DEVICES "/%s/ports/%s/gids/%u", device, port,
				 i))
			break;
		/* On RoCE, reading the type of an unused entry fails. */
		if (!strcmp(gid, unset))
			continue;
		doctor_read(type, sizeof(type), SYS_DEVICES "/%s/ports/%s/gid_attrs/types/%u",
			    device, port, i);
		out->n++;
		out->v2 += !strcmp(type, "RoCE v2");
		if (!strcmp(type, "RoCE v2") && gid_ipv4(gid, ip) && !out->ipv4[0]) {
			strcpy(out->ipv4, ip);
			snprintf(out->best, sizeof(out->best), "RoCE v2 at %s (index %u)", ip, i);
		} else if (!out->best[0]) {
			snprintf(out->best, sizeof(out->best), "%s %s (index %u)",
				 type[0] ? type : "GID", gid, i);
		}
	}
}

static bool check_port(struct doctor *d, const char *device, const char *port, struct gids *gids)
{
	char state[32] = "?", layer[32] = "?", rate[64] = "?", netdev[NAME_BYTES] = "INTERFACE";
	const char *name;
	struct finding *f;
	bool active;

	doctor_read(state, sizeof(state), SYS_DEVICES "/%s/ports/%s/state", device, port);
	doctor_read(layer, sizeof(layer), SYS_DEVICES "/%s/ports/%s/link_layer", device, port);
	doctor_read(rate, sizeof(rate), SYS_DEVICES "/%s/ports/%s/rate", device, port);
	if (!doctor_read(netdev, sizeof(netdev), SYS_DEVICES "/%s/ports/%s/gid_attrs/ndevs/0",
			 device, port))
		doctor_read(netdev, sizeof(netdev), SYS_DEVICES "/%s/parent",
			    device); /* Soft-RoCE */
	port_read_gids(device, port, gids);
	name = strchr(state, ' ') ? strchr(state, ' ') + 1 : state; /* "4: ACTIVE" */
	active = !strcmp(name, "ACTIVE");
	f = doctor_say(d, active && gids->n ? DOCTOR_OK : DOCTOR_NO, "verbs", "port",
		       "%s port %s is %s, %s, %s; %u GIDs%s%s", device, port, name, layer, rate,
		       gids->n, gids->n ? ", " : "", gids->best);
	if (!active && !strcmp(layer, "InfiniBand"))
		doctor_fix(f, "%sopensm -B (a subnet needs one manager), and check the cable",
			   sudo_prefix());
	else if (!active)
		doctor_fix(f, "%sip link set dev %s up", sudo_prefix(), netdev);
	else if (!gids->n)
		doctor_fix(f, "%sip addr add ADDRESS/PREFIX dev %s", sudo_prefix(), netdev);
	return active && gids->n;
}

static void device_try(struct doctor *d, const char *device, const char *ipv4)
{
	struct probe_result result;
	char fabric[NAME_BYTES + 8], addr[64];
	int rc;

	snprintf(fabric, sizeof(fabric), "verbs:%.63s", device);
	snprintf(addr, sizeof(addr), "verbs:%s:%ld", ipv4, 20000 + (long)getpid() % 20000);
	doctor_try(d);
	rc = probe_self(fabric, addr, &result);
	if (rc)
		doctor_say(d, DOCTOR_NO, "verbs", "connection", "%s, %s: %s", device, result.step,
			   doctor_reason(d, rc));
	else
		doctor_say(
			d, DOCTOR_OK, "verbs", "connection",
			"%s moved bytes by WRITE, READ and SEND over a connection to itself (%s)",
			device, ipv4);
}

/* The file that opens the device: the class lists them by other names. */
static void check_uverbs(struct doctor *d, const char *device)
{
	char names[DEVICES_MAX][NAME_BYTES], of[NAME_BYTES], path[128];
	const unsigned n = dir_list("/sys/class/infiniband_verbs", names, DEVICES_MAX);

	for (unsigned i = 0; i < n; i++) {
		if (!doctor_read(of, sizeof(of), "/sys/class/infiniband_verbs/%s/ibdev",
				 names[i]) ||
		    strcmp(of, device))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%.63s", names[i]);
		check_node(d, path, "ib_uverbs");
	}
}

static void check_device(struct doctor *d, const char *device)
{
	char ports[PORTS_MAX][NAME_BYTES], dir[128];
	bool usable = false;
	struct gids gids;
	unsigned n;

	check_uverbs(d, device);
	snprintf(dir, sizeof(dir), SYS_DEVICES "/%.63s/ports", device);
	n = dir_list(dir, ports, PORTS_MAX);
	for (unsigned i = 0; i < n; i++) {
		if (!check_port(d, device, ports[i], &gids))
			continue;
		if (gids.ipv4[0] && !usable)
			device_try(d, device, gids.ipv4);
		else if (!usable)
			doctor_say(d, DOCTOR_NOTE, "verbs", "connection",
				   "%s: not tried, it has no RoCE v2 GID of an IPv4 address",
				   device);
		usable = true;
	}
}

/* Can the provider be opened at all? Its own words say why not. */
static bool check_open(struct doctor *d, unsigned n_devices)
{
	struct gn_fabric *fabric;
	struct finding *f;
	int rc;

	doctor_try(d);
	rc = gn_fabric_open("verbs", &fabric);
	if (!rc) {
		gn_fabric_close(fabric);
		doctor_say(d, DOCTOR_OK, "verbs", "provider", "built in, and it found a device");
		return true;
	}
	f = doctor_say(d, DOCTOR_NO, "verbs", "provider", "%s", doctor_reason(d, rc));
	if (strstr(d->reason, "not built in"))
		doctor_fix(f, "%sapt-get install libibverbs-dev librdmacm-dev && make",
			   sudo_prefix());
	else if (rc == -ENODEV && n_devices)
		doctor_fix(f, "%sapt-get install ibverbs-providers", sudo_prefix());
	return !strstr(d->reason, "not built in");
}

void doctor_verbs(struct doctor *d)
{
	char devices[DEVICES_MAX][NAME_BYTES];
	const unsigned n = dir_list(SYS_DEVICES, devices, DEVICES_MAX);

	if (!check_open(d, n))
		return;
	for (unsigned i = 0; i < n; i++)
		check_device(d, devices[i]);
	if (n)
		check_node(d, "/dev/infiniband/rdma_cm", "rdma_ucm");
	else
		check_soft_roce(d);
	check_memlock(d);
}
