/* SPDX-License-Identifier: MIT */
/* What the files of the nbdkit plugin share. */
#ifndef GN_NBD_PLUGIN_H
#define GN_NBD_PLUGIN_H

#include <stdbool.h>

#include <gannet/vol.h>

/* ---- parameters (config.c) ---- */

struct nbd_config {
	struct gn_vol_opts vol;
	const char *donors[GN_VOL_DONORS_MAX];
	const char *provider;
	const char *monitor; /* an address; NULL: none */
	const char *backup;  /* a file, with its whole path; NULL: none */
	int ready_fd;	     /* gets a line when the volume is there; -1: none */
	bool swap;
	bool parallel; /* several requests of one connection at a time */
};

extern struct nbd_config nbd_config;
extern const char nbd_config_help[];

/* As nbdkit's callbacks: 0, or -1 after nbdkit_error(). */
int nbd_config_set(const char *key, const char *value);
int nbd_config_complete(void);

/* ---- before nbdkit forks (probe.c) ---- */

/*
 * Asks the donors whether the volume can be created. After the fork nobody sees an error message,
 * and the exit status of nbdkit has been 0 already. 0, or -1 after nbdkit_error().
 */
int nbd_probe(void);

/* ---- a backup in a file (backup.c) ---- */

/* 0, or -1 after nbdkit_error(). Creates the file, with the size of the volume. */
int nbd_backup_open(const char *path, uint64_t bytes, struct gn_vol_backup *out);
void nbd_backup_close(struct gn_vol_backup *backup);

/* Why a call of Gannet's returned rc. */
const char *nbd_why(int rc);

#endif
