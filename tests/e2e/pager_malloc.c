/* SPDX-License-Identifier: MIT */
/* A program that brings its own malloc(), which the pager's library cannot replace. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char heap[1 << 20];
static size_t used;

void *malloc(size_t bytes)
{
	void *ptr = heap + used;

	used += (bytes + 15) & ~(size_t)15;
	return used <= sizeof(heap) ? ptr : NULL;
}

void *calloc(size_t n, size_t bytes)
{
	return malloc(n * bytes); /* never used before: zeros */
}

void *realloc(void *ptr, size_t bytes)
{
	void *more = malloc(bytes);

	return more && ptr ? memmove(more, ptr, bytes) : more;
}

void free(void *ptr)
{
	(void)ptr;
}

int main(void)
{
	puts("ran");
	return 0;
}
