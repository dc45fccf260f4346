/* SPDX-License-Identifier: MIT */
/* A library of pager_program whose constructor does the program's work: dlopen() has its lock. */
void library_loads(void);

__attribute__((constructor)) static void loaded(void)
{
	library_loads();
}
