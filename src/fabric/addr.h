/* SPDX-License-Identifier: MIT */
/* Addresses of "provider:…": a check without a connection, for layers that connect later. */
#ifndef GN_FABRIC_ADDR_H
#define GN_FABRIC_ADDR_H

#include "gannet/fabric.h"

/*
 * 0; -EINVAL with a text and a line in the log, as of gn_listener_create() and gn_connect(): not an
 * address of the fabric's provider, or not one to connect to. Looks up no names.
 */
int fabric_addr_check(struct gn_fabric *fabric, const char *addr);

#endif
