/* SPDX-License-Identifier: MIT */
/*
 * A listening socket: TCP at PORT (on the loopback), HOST:PORT or [HOST]:PORT, or unix:PATH. A port
 * of 0 is any that is free.
 */
#ifndef GN_PROXY_LISTEN_H
#define GN_PROXY_LISTEN_H

struct px_listener {
	int fd;
	char *path;	/* of a Unix socket, to be removed */
	char name[160]; /* as printed */
};

/* -errno after a word on stderr. mode: of a Unix socket. */
int px_listen(const char *where, unsigned mode, struct px_listener *out);
void px_unlisten(struct px_listener *l);

#endif
