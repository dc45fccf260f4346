/* SPDX-License-Identifier: MIT */
/* The parameters of the nbdkit plugin: donor=ADDR size=N and so on. */
#define NBDKIT_API_VERSION 2
#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/*
 * Before 1.33.10 nbdkit aborts when a client is killed while several requests of its connection are
 * under way ("Assertion `sock >= 0' failed"), and the volume is gone.
 */
#define PARALLEL_IS_SAFE                                          \
	(NBDKIT_VERSION_MAJOR > 1 || NBDKIT_VERSION_MINOR > 33 || \
	 (NBDKIT_VERSION_MINOR == 33 && NBDKIT_VERSION_MICRO >= 10))

struct nbd_config nbd_config = {.vol = {.size = sizeof(struct gn_vol_opts), .owner = "nbd"},
				.ready_fd = -1,
				.parallel = PARALLEL_IS_SAFE};

const char nbd_config_help[] =
	"donor=<ADDR>       (required) shm:NAME or verbs:HOST:PORT of a donor; repeat it.\n"
	"size=<N>           (required) Bytes of the volume, a multiple of 4096: 4G.\n"
	"copies=<N>         Copies of each block, on different donors (default 2).\n"
	"verify=true        Keep checksums, and check each read.\n"
	"headroom=<N>       Get memory as it is written, and hold so much in reserve\n"
	"                   (default: get all memory at the start).\n"
	"repair-share=<N>   Percent of the time that repair may use (default 25).\n"
	"owner=<TAG>        How gannet donor list names the volume (default nbd).\n"
	"provider=<NAME>    shm or verbs:DEVICE (default: as the donors' addresses say).\n"
	"backup=<FILE>      Copy all writes to a file, in the background.\n"
	"monitor=<ADDR>     Where gannet vol status can ask.\n"
	"swap=true          The volume is used as swap space of this machine\n"
	"                   (default: if nbdkit has --swap).\n"
	"parallel=<BOOL>    Several requests of one connection at a time (default: true,\n"
	"                   false with nbdkit 1.32, which aborts when a client is killed).\n"
	"ready-fd=<N>       For programs that start nbdkit: a descriptor that gets a line when\n"
	"                   the volume is ready.";

static int config_size(const char *key, const char *value, uint64_t *out)
{
	const int64_t bytes = nbdkit_parse_size(value);

	if (bytes < 0)
		return -1;
	if (bytes == 0) {
		nbdkit_error("%s must not be 0", key);
		return -1;
	}
	*out = (uint64_t)bytes;
	return 0;
}

static int config_bool(const char *value, bool *out)
{
	const int yes = nbdkit_parse_bool(value);

	if (yes < 0)
		return -1;
	*out = yes;
	return 0;
}

static int config_count(const char *key, const char *value, uint32_t max, uint32_t *out)
{
	uint32_t n;

	if (nbdkit_parse_uint32_t(key, value, &n))
		return -1;
	if (n < 1 || n > max) {
		nbdkit_error("%s must be 1 to %" PRIu32 ", not %s", key, max, value);
		return -1;
	}
	*out = n;
	return 0;
}

static int config_donor(const char *value)
{
	uint32_t n = nbd_config.vol.n_donors;

	if (n == GN_VOL_DONORS_MAX) {
		nbdkit_error("a volume has at most %u donors", GN_VOL_DONORS_MAX);
		return -1;
	}
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(nbd_config.donors[i], value)) {
			nbdkit_error("donor=%s is listed twice: copies must be on different donors",
				     value);
			return -1;
		}
	nbd_config.donors[n] = nbdkit_strdup_intern(value);
	nbd_config.vol.n_donors = n + 1;
	return nbd_config.donors[n] ? 0 : -1;
}

static int config_text(const char *value, const char **out)
{
	*out = nbdkit_strdup_intern(value);
	return *out ? 0 : -1;
}

int nbd_config_set(const char *key, const char *value)
{
	struct gn_vol_opts *vol = &nbd_config.vol;

	if (!strcmp(key, "donor"))
		return config_donor(value);
	if (!strcmp(key, "size"))
		return config_size(key, value, &vol->bytes);
	if (!strcmp(key, "copies"))
		return config_count(key, value, GN_VOL_COPIES_MAX, &vol->copies);
	if (!strcmp(key, "verify"))
		return config_bool(value, &vol->verify);
	if (!strcmp(key, "headroom"))
		return config_size(key, value, &vol->headroom);
	if (!strcmp(key, "repair-share"))
		return config_count(key, value, 100, &vol->repair_share);
	if (!strcmp(key, "owner"))
		return config_text(value, &vol->owner);
	if (!strcmp(key, "provider"))
		return config_text(value, &nbd_config.provider);
	if (!strcmp(key, "monitor"))
		return config_text(value, &nbd_config.monitor);
	if (!strcmp(key, "backup")) {
		/* nbdkit changes its directory when it forks. */
		char *path = nbdkit_absolute_path(value);

		if (!path)
			return -1;
		nbd_config.backup = path;
		return 0;
	}
	if (!strcmp(key, "ready-fd"))
		return nbdkit_parse_int(key, value, &nbd_config.ready_fd);
	if (!strcmp(key, "swap"))
		return config_bool(value, &nbd_config.swap);
	if (!strcmp(key, "parallel"))
		return config_bool(value, &nbd_config.parallel);
	nbdkit_error("unknown parameter '%s'; nbdkit gannet --help lists all", key);
	return -1;
}

/* nbdkit does not tell a plugin about its options. */
static bool config_nbdkit_has_swap(void)
{
	FILE *f = fopen("/proc/self/cmdline", "re");
	char *word = NULL;
	size_t room = 0;
	bool swap = false;

	if (!f)
		return false;
	while (!swap && getdelim(&word, &room, '\0', f) > 0)
		swap = !strcmp(word, "--swap");
	free(word);
	fclose(f);
	return swap;
}

static int config_provider(void)
{
	const char *first = nbd_config.donors[0];
	const size_t len = strcspn(first, ":");

	if (!first[len]) {
		nbdkit_error("donor=%s is no address; those are shm:NAME and verbs:HOST:PORT",
			     first);
		return -1;
	}
	for (uint32_t i = 1; i < nbd_config.vol.n_donors; i++)
		if (strncmp(nbd_config.donors[i], first, len + 1)) {
			nbdkit_error("donor=%s and donor=%s are of different providers", first,
				     nbd_config.donors[i]);
			return -1;
		}
	if (!nbd_config.provider)
		nbd_config.provider = nbdkit_strndup_intern(first, len);
	return nbd_config.provider ? 0 : -1;
}

int nbd_config_complete(void)
{
	struct gn_vol_opts *vol = &nbd_config.vol;
	const uint32_t copies = vol->copies ? vol->copies : 2;

	if (!vol->n_donors) {
		nbdkit_error("no donor: donor=shm:NAME or donor=verbs:HOST:PORT, and gannet donor "
			     "serve starts one");
		return -1;
	}
	if (!vol->bytes) {
		nbdkit_error("how large is the volume? size=4G, for example");
		return -1;
	}
	if (vol->bytes % GN_VOL_BLOCK || vol->bytes > GN_VOL_SIZE_MAX) {
		nbdkit_error("size=%" PRIu64 " must be a multiple of %u, and at most %llu",
			     vol->bytes, GN_VOL_BLOCK, GN_VOL_SIZE_MAX);
		return -1;
	}
	if (copies > vol->n_donors) {
		nbdkit_error("%" PRIu32 " copies need %" PRIu32 " donors: list more than %" PRIu32
			     ", or set copies=%" PRIu32,
			     copies, copies, vol->n_donors, vol->n_donors);
		return -1;
	}
	if (copies == 1)
		fprintf(stderr, "nbdkit: gannet: warning: copies=1: a donor that ends takes its "
				"part of the volume with it\n");
	vol->copies = copies;
	vol->donors = nbd_config.donors;
	nbd_config.swap = nbd_config.swap || config_nbdkit_has_swap();
	return config_provider();
}
