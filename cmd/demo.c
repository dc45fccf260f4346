/* SPDX-License-Identifier: MIT */
#include "cmd.h"
int cmd_demo(int argc, char **argv) { (void)argc; (void)argv; return 0; }
int cmd_demo_peer(int argc, char **argv) { (void)argc; (void)argv; return 0; }
